"""Level-2 metrics: cards as dcgm-exporter names and measures them, containers under ``egpu_node_``."""

from vc_egpu_node.metrics.collector import Metrics
from vc_egpu_node.metrics.view import View

__all__ = ["Metrics", "View"]
