"""One gang: what it was granted, what it uses, and how long it waited or was suspended."""

from typing import Final

from boards.panels import Board, Variable, panel, stat

_MINE: Final = (
    "* on (namespace, pod, container, uuid) group_left ()"
    ' (egpu_share_memory_bytes{namespace="$namespace",gang="$gang"} ^ 0)'
)

BOARD: Final = Board(
    "vc-egpu-job",
    "vc-egpu: job",
    "One gang: what it was granted, what it uses, and what it waited for.",
    (
        stat(
            "Shares",
            "How many shares of cards it has.",
            'count(egpu_share_memory_bytes{namespace="$namespace",gang="$gang"})',
        ),
        stat(
            "Memory granted",
            "High: it holds this much memory of cards.",
            'gang:egpu_memory_granted_bytes:sum{namespace="$namespace",gang="$gang"}',
            "bytes",
        ),
        stat(
            "Memory used",
            "Far below granted: it asks for more than it needs.",
            'gang:egpu_memory_used_bytes:sum{namespace="$namespace",gang="$gang"}',
            "bytes",
        ),
        stat(
            "Cards' time used",
            "In cards: 2 means that two cards' time is used.",
            'gang:egpu_compute_used_seconds:rate5m{namespace="$namespace",gang="$gang"}',
        ),
        stat(
            "Suspended now",
            "Above 0: shares have left their cards for a while.",
            "count(egpu_share_suspended and on (namespace, pod, container, uuid)"
            ' egpu_share_memory_bytes{namespace="$namespace",gang="$gang"}) or vector(0)',
        ),
        stat(
            "Time held",
            "High: it has been on its cards for long.",
            f"max(egpu_node_container_share_seconds_total {_MINE})",
            "s",
        ),
        panel(
            "Memory used of what was granted, the 20 highest",
            "Near 1: the container is close to its limit.",
            (
                f"topk(20, egpu_node_container_memory_used_bytes {_MINE}"
                " / on (namespace, pod, container, uuid) egpu_node_container_memory_granted_bytes)",
                "{{pod}} {{container}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Compute used, the 20 busiest",
            "Near what was granted: the container uses its share.",
            (
                f"topk(20, rate(egpu_node_container_compute_used_seconds_total[2m]) {_MINE})",
                "{{pod}} {{container}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Launches wait, the 20 longest",
            "High: it waits for a higher class, or for its own share.",
            (
                f"topk(20, sum by (namespace, pod, container, uuid)"
                f" (rate(egpu_node_container_launch_wait_seconds_total[2m])) {_MINE})",
                "{{pod}} {{container}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Time suspended, the 20 longest",
            "High: the container was away from its card for so long.",
            (f"topk(20, egpu_node_container_suspended_seconds_total {_MINE})", "{{pod}} {{container}}"),
            unit="s",
        ),
        panel(
            "Its cards",
            "Each row is a share: where it is, and how large.",
            ('topk(200, egpu_share_memory_bytes{namespace="$namespace",gang="$gang"})', ""),
            kind="table",
            unit="bytes",
            width=24,
        ),
    ),
    (
        Variable("namespace", "egpu_share_memory_bytes"),
        Variable("gang", 'egpu_share_memory_bytes{namespace="$namespace"}'),
    ),
)
