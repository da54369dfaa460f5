"""A real Kubernetes cluster on one machine."""

from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError
from localcluster.node import RealNode
from localcluster.spec import ClientRate, ClusterSpec

__all__ = ["ClientRate", "ClusterSpec", "LocalCluster", "LocalClusterError", "RealNode"]
