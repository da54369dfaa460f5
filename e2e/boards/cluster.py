"""The whole cluster: capacity, what is allocated and used, what is ill, and what waits for which reason."""

from typing import Final

from boards.panels import Board, panel, stat

BOARD: Final = Board(
    "vc-egpu-cluster",
    "vc-egpu: cluster",
    "Who uses what, what idles, and whether everything is well.",
    (
        stat("Cards that take work", "High: much of the cluster is in order.", "sum(egpu_card_usable)"),
        stat(
            "Cards that take none",
            "Above 0: cards are ill, cordoned, or their node is away.",
            "count(egpu_card_usable == 0) or vector(0)",
        ),
        stat("Shares", "High: many containers share the cards.", "sum(egpu_card_sharers)"),
        stat(
            "Gangs that wait",
            "High: more is asked for than there is, or caps hold it back.",
            "sum(egpu_queue_waiting_gangs) or vector(0)",
        ),
        stat(
            "Oldest that waits",
            "High: a gang has waited for this long.",
            "max(egpu_queue_oldest_waiting_seconds) or vector(0)",
            "s",
        ),
        stat("Leads", "1: one process decides.", "sum(egpu_admission_leader)"),
        panel(
            "Memory allocated by model",
            "Near 1: the cards of that model are given out.",
            ("model:egpu_card_memory_allocated:ratio", "{{model}}"),
            unit="percentunit",
        ),
        panel(
            "Compute allocated by model",
            "Above 1: compute is promised more than once.",
            ("model:egpu_cores_allocated:ratio", "{{model}}"),
            unit="percentunit",
        ),
        panel(
            "Cards busy by model",
            "Low next to much allocated memory: what is held is not used.",
            (
                "avg by (model) (card:gpu_utilization:ratio * on (uuid) group_left (model)"
                " max by (uuid, model) (egpu_card_usable ^ 0))",
                "{{model}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Memory used and granted",
            "Used far below granted: jobs ask for more than they need.",
            ("sum(egpu_node_container_memory_used_bytes)", "used"),
            ("sum(egpu_node_container_memory_granted_bytes)", "granted"),
            unit="bytes",
        ),
        panel(
            "Gangs that wait, by reason",
            "High: see the reason. For cards: no room. For quota: the cap.",
            ("sum by (reason) (egpu_queue_waiting_gangs)", "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Wait of admitted gangs, p90",
            "High: one gang of ten waited longer than this before it started.",
            (
                "histogram_quantile(0.9, sum by (le, class) (rate(egpu_gang_wait_seconds_bucket[30m])))",
                "class {{class}}",
            ),
            unit="s",
        ),
        panel(
            "Queues: used of cap, the 20 fullest",
            "Near 1: that queue's next gang waits for its own.",
            (
                'topk(20, egpu_queue_used{resource=~"volcano.sh/vgpu-.+"} / (egpu_queue_capability > 0))',
                "{{queue}} {{resource}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Pods evicted and suspended, by cause",
            "High: much work makes room for other work.",
            ("sum by (cause) (rate(egpu_pods_evicted_total[5m]))", "evicted: {{cause}}"),
            ("sum by (cause) (rate(egpu_pods_suspended_total[5m]))", "suspended: {{cause}}"),
        ),
        panel(
            "Decisions, p50 and p99",
            "High: the leader lacks CPU, or very many gangs wait.",
            (
                "histogram_quantile(0.5, sum by (le) (rate(egpu_admission_decision_seconds_bucket[5m])))",
                "p50",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(egpu_admission_decision_seconds_bucket[5m])))",
                "p99",
            ),
            unit="s",
        ),
        panel(
            "What the leader does",
            "High: much happens, or something is tried again and again.",
            ("sum by (operation) (rate(egpu_admission_operations_total[5m]))", "{{operation}}"),
        ),
        panel(
            "Cards that take nothing",
            "Each row is a card to look at.",
            ("topk(100, egpu_card_usable == 0)", ""),
            kind="table",
        ),
        panel(
            "Webhook reviews, p99",
            "High: Jobs are slow to be accepted.",
            ("histogram_quantile(0.99, sum by (le) (rate(egpu_webhook_review_seconds_bucket[5m])))", "p99"),
            unit="s",
        ),
    ),
)
