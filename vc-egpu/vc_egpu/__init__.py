"""vc-egpu: GPU sharing for batch clusters on Kubernetes and Volcano."""

__version__ = "0.1.0"
