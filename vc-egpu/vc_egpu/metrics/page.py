"""``docs/metrics.md``, made from the vocabulary: ``python -m vc_egpu.metrics.page > docs/metrics.md``."""

import sys
from collections.abc import Iterable
from typing import Final

from vc_egpu.metrics.family import Family
from vc_egpu.metrics.vocabulary import ALL

_HEAD: Final = """# Metrics

All metrics of all processes. `make metrics-page` makes this page from the table in
`vc-egpu/vc_egpu/metrics/vocabulary`. A test compares it with what the processes show.

Units are bytes, seconds, and ratios from 0 to 1. DCGM's names keep DCGM's units. A card is `node`, `uuid`,
`index`, `model`. A share is `namespace`, `pod`, `container`, `uuid`.

A share's queue, gang, class and model stand on level 1 alone. Join them to what the node agents say:

```promql
egpu_node_container_memory_used_bytes
  * on (namespace, pod, container, uuid) group_left (queue, gang, class, model)
    (egpu_share_memory_bytes ^ 0)
```

Scrape with `honor_labels: true`, or the tenant's `pod` becomes `exported_pod`. Histograms have classic
buckets. With `convert_classic_histograms_to_nhcb: true` Prometheus keeps each as one series.

**How many series.** A test holds these bounds:

| what | series |
|---|---|
| a card | 8 on level 1, 30 on level 2 |
| a share | 3 on level 1, 8 on level 2 |
| a node | 3 on level 1, 150 of its agent |
| the admission process | 400, and for each queue 4 of each resource, 14 of each class, and what waits |

5,000 nodes with 8 cards and 140,000 shares have at most 0.8 million series on level 1 and 3.1 million on
level 2.
These switches make them fewer: `--share-metrics=off` on the admission controller, `--dcgm-names=off` on the
agents, and longer scrape intervals. `--container-metrics=full` adds 6 for each share.
"""
_TITLES: Final = {
    ("all", "/metrics"): "Every process",
    ("admission", "/metrics"): "Admission: process and queues (`/metrics`, port 9446)",
    ("admission", "/metrics/cards"): "Admission: cards (`/metrics/cards`)",
    ("admission", "/metrics/shares"): "Admission: shares (`/metrics/shares`)",
    ("webhook", "/metrics"): "Webhook",
    ("jobs", "/metrics"): "Job controller",
    ("jobs-api", "/metrics"): "Jobs over HTTP (`/metrics`, port 9453)",
    ("traces", "/metrics"): "Traces of starts (`/metrics`, port 9454)",
    ("node-agent", "/metrics"): "Node agent (`/metrics`, port 9445)",
}
_ABOUT: Final = {
    "Admission: process and queues (`/metrics`, port 9446)": """\
A standby shows `egpu_admission_leader` 0 and nothing of the cluster. Totals are of the present leadership.
Where `class` is empty, the pods named none.""",
    "Admission: cards (`/metrics/cards`)": """\
Scrape it every 60 s. Free memory is the difference of the first two.""",
    "Admission: shares (`/metrics/shares`)": """\
Scrape it every 60 s. `--share-metrics=off` leaves it out.""",
    "Node agent (`/metrics`, port 9445)": """\
*(optional)*: only with the library, `--container-metrics=full`, or where a card tells it.

DCGM's names are off where a dcgm-exporter answers on port 9400 of the node (`--dcgm-names`). They carry no
pod, because a card is not one pod's. dcgm-exporter's `NVLINK_BANDWIDTH_TOTAL`, `VGPU_LICENSE_STATUS` and
profiling fields are not shown.""",
}


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for key, title in _TITLES.items():
        families = [one for one in ALL if (one.component, one.path) == key]
        about = f"{_ABOUT[title]}\n\n" if title in _ABOUT else ""
        parts.append(f"## {title}\n\n{about}{_table(families)}\n")
    return "\n".join(parts)


def _table(families: Iterable[Family]) -> str:
    rows = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    for one in families:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        meaning = f"*(optional)* {one.help}" if one.optional else one.help
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.unit} | {meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
