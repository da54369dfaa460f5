"""One queue: its caps and use, what waits and since when, and which gangs use what they hold."""

from typing import Final

from boards.panels import Board, Variable, panel, stat

BOARD: Final = Board(
    "vc-egpu-tenant",
    "vc-egpu: tenant",
    "One queue: what it may use, uses, and keeps waiting.",
    (
        stat("Shares", "High: many containers run.", 'count(egpu_share_memory_bytes{queue="$queue"})'),
        stat(
            "Memory granted",
            "High: the queue holds this much memory of cards.",
            'queue:egpu_memory_granted_bytes:sum{queue="$queue"}',
            "bytes",
        ),
        stat(
            "Memory used",
            "Far below granted: jobs ask for more than they need.",
            'queue:egpu_memory_used_bytes:sum{queue="$queue"}',
            "bytes",
        ),
        stat(
            "Busy",
            "Near 1: each share computes all the time. Near 0: they idle.",
            'queue:egpu_compute_used:ratio{queue="$queue"}',
            "percentunit",
        ),
        stat(
            "Gangs that wait",
            "High: the cap is reached, or cards are missing.",
            'sum(egpu_queue_waiting_gangs{queue="$queue"}) or vector(0)',
        ),
        stat(
            "Oldest that waits",
            "High: a gang has waited for this long.",
            'max(egpu_queue_oldest_waiting_seconds{queue="$queue"}) or vector(0)',
            "s",
        ),
        panel(
            "Used of the cap",
            "Near 1: the next gang waits until one of this queue ends.",
            (
                'egpu_queue_used{queue="$queue",resource=~"volcano.sh/.+"} / (egpu_queue_capability > 0)',
                "{{resource}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Used, deserved, guarantee",
            "Used above deserved: others may take it back.",
            ('egpu_queue_used{queue="$queue",resource=~"volcano.sh/v?gpu-.+"}', "used {{resource}}"),
            ('egpu_queue_deserved{queue="$queue",resource=~"volcano.sh/v?gpu-.+"}', "deserved {{resource}}"),
            (
                'egpu_queue_guarantee{queue="$queue",resource=~"volcano.sh/v?gpu-.+"}',
                "guarantee {{resource}}",
            ),
        ),
        panel(
            "What waits asks for",
            "High: so much more would run at once.",
            ('egpu_queue_waiting_resources{queue="$queue",resource=~"volcano.sh/v?gpu-.+"}', "{{resource}}"),
        ),
        panel(
            "Gangs that wait, by reason",
            "High: see the reason with `kubectl egpu why`.",
            ('sum by (reason, class) (egpu_queue_waiting_gangs{queue="$queue"})', "{{reason}} {{class}}"),
            stacked=True,
        ),
        panel(
            "Memory granted by gang, the 20 largest",
            "High: that gang holds most.",
            (
                'topk(20, sum by (namespace, gang) (egpu_share_memory_bytes{queue="$queue"}))',
                "{{namespace}}/{{gang}}",
            ),
            unit="bytes",
        ),
        panel(
            "Compute used by gang, the 20 busiest",
            "In cards: 2 means that two cards' time is used.",
            (
                "topk(20, gang:egpu_compute_used_seconds:rate5m and on (namespace, gang)"
                ' sum by (namespace, gang) (egpu_share_memory_bytes{queue="$queue"}))',
                "{{namespace}}/{{gang}}",
            ),
        ),
        panel(
            "Gangs admitted",
            "High: many gangs start.",
            (
                'sum by (class) (rate(egpu_gangs_admitted_total{queue="$queue"}[30m])) * 3600',
                "an hour, class {{class}}",
            ),
        ),
        panel(
            "Pods evicted and suspended, by cause",
            "High: this queue's work makes room for other work.",
            (
                'sum by (cause) (rate(egpu_pods_evicted_total{queue="$queue"}[30m])) * 3600',
                "evicted an hour: {{cause}}",
            ),
            (
                'sum by (cause) (rate(egpu_pods_suspended_total{queue="$queue"}[30m])) * 3600',
                "suspended an hour: {{cause}}",
            ),
        ),
    ),
    (Variable("queue", "egpu_queue_info"),),
)
