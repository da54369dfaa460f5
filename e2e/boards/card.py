"""One card: its health and load, and the containers that share it."""

from typing import Final

from boards.panels import Board, Variable, panel, stat

BOARD: Final = Board(
    "vc-egpu-card",
    "vc-egpu: card",
    "One card: how it is, and which containers share it.",
    (
        stat("Takes work", "1: it takes new shares.", 'max(egpu_card_usable{uuid="$uuid"})'),
        stat("Healthy", "1: its agent finds it in order.", 'max(egpu_node_card_healthy{uuid="$uuid"})'),
        stat("Sharers", "High: many containers share it.", 'max(egpu_card_sharers{uuid="$uuid"})'),
        stat(
            "Suspended",
            "Above 0: containers have left it for a while.",
            'max(egpu_card_suspended_sharers{uuid="$uuid"})',
        ),
        stat(
            "Memory allocated",
            "Near 1: no share of any size fits any more.",
            'max(egpu_card_memory_allocated_bytes{uuid="$uuid"}) / max(egpu_card_memory_bytes{uuid="$uuid"})',
            "percentunit",
        ),
        stat(
            "Compute allocated",
            "Above 1: compute is promised more than once.",
            'max(egpu_card_cores_allocated_ratio{uuid="$uuid"})',
            "percentunit",
        ),
        panel(
            "Memory used by container",
            "The sum near the card's size: the next allocation may fail.",
            ('egpu_node_container_memory_used_bytes{uuid="$uuid"}', "{{namespace}}/{{pod}} {{container}}"),
            ('card:memory_used_bytes:max{uuid="$uuid"}', "the card"),
            unit="bytes",
        ),
        panel(
            "Compute used by container",
            "The sum near 1: the card is busy all the time.",
            (
                'rate(egpu_node_container_compute_used_seconds_total{uuid="$uuid"}[2m])',
                "{{namespace}}/{{pod}} {{container}}",
            ),
            unit="percentunit",
            stacked=True,
        ),
        panel(
            "Launches wait",
            "High: that container waits for a higher class, or for its own share.",
            (
                'rate(egpu_node_container_launch_wait_seconds_total{uuid="$uuid"}[2m])',
                "{{namespace}}/{{pod}} {{cause}}",
            ),
            unit="percentunit",
        ),
        panel(
            "Busy",
            "Near 1: a kernel runs all the time.",
            ('card:gpu_utilization:ratio{uuid="$uuid"}', "busy"),
            unit="percentunit",
        ),
        panel(
            "Power",
            "High: the card works hard.",
            ('card:power_watts:max{uuid="$uuid"}', "power"),
            unit="watt",
        ),
        panel(
            "Temperature",
            "High: the card may slow itself down.",
            ('card:temperature_celsius:max{uuid="$uuid"}', "chip"),
            unit="celsius",
        ),
        panel(
            "Who shares it",
            "Each row is a share, with its queue, gang and class.",
            ('egpu_share_memory_bytes{uuid="$uuid"}', ""),
            kind="table",
            unit="bytes",
            width=24,
        ),
    ),
    (Variable("node", "egpu_card_usable"), Variable("uuid", 'egpu_card_usable{node="$node"}')),
)
