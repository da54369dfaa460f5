"""The cluster that e2e tests share: two real nodes with four fake H20 cards each, our stack on it.

``VC_EGPU_E2E_CLUSTER=<name>`` uses a cluster that is up with the stack installed, and leaves it up.
"""

from collections.abc import Iterator

import pytest
from stack.install import Stack
from stack.shared import shared_stack


@pytest.fixture(scope="session")
def stack(worker_id: str) -> Iterator[Stack]:
    """The installed stack; each worker of a parallel run has its own."""
    with shared_stack("e2e", worker_id) as stack:
        yield stack
