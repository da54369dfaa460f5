"""What the tests of the Job controller share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.jobs.cluster import Cluster, cluster_in


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A controller next to its API server, which holds a queue ``mine``."""
    with cluster_in(tmp_path) as made:
        yield made
