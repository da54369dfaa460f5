"""What every process says of itself."""

from typing import Final

from prometheus_client import CollectorRegistry

from vc_egpu.metrics.family import Component, Family

BUILD_INFO: Final = Family(
    "egpu_build_info", "gauge", ("version", "component"), "1: the version of this process."
)


def tell_build(registry: CollectorRegistry, component: Component, version: str) -> None:
    """Have a registry show which version of which process it is."""
    BUILD_INFO.gauge(registry).labels(version, component).set(1)
