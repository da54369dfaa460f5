"""A cluster with two tenants, and our server in front of it."""

from collections.abc import Iterator

import pytest
from unit.jobsapi.stand_in import Caller, Cluster, cluster, served
from vc_egpu.jobsapi.catalogue import shipped


@pytest.fixture
def api() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture
def ann(api: Cluster) -> Iterator[Caller]:
    """Ann's program; she may write in namespace lab alone."""
    with served(api.url, shipped()) as url:
        yield Caller(url)
