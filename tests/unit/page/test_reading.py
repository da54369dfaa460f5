"""What the page needs of the connection: another's token, metadata alone, and whether a watch is well."""

from collections.abc import Iterator

import pytest
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from vc_egpu.kube import ApiConnection, Backoff, ConfigError, Reflector
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.wire.errors import Unauthorized, Unavailable


@pytest.fixture
def connection(api: ClusterApi) -> Iterator[ApiConnection]:
    found = ApiConnection.with_token(api.url, None, "operator-token")
    yield found
    found.close()


def test_a_token_is_all_that_goes_out(api: ClusterApi, connection: ApiConnection) -> None:
    connection.list(NODES)
    assert {token for _, _, token, _ in api.requests} == {"operator-token"}


def test_a_wrong_token_is_refused_and_not_replaced(api: ClusterApi) -> None:
    stranger = ApiConnection.with_token(api.url, None, "wrong")
    with pytest.raises(Unauthorized):
        stranger.list(NODES)
    stranger.close()
    assert {token for _, _, token, _ in api.requests} == {"wrong"}


def test_an_address_that_is_no_url() -> None:
    with pytest.raises(ConfigError):
        ApiConnection.with_token("kubernetes", None, "token")


def test_metadata_alone(api: ClusterApi, connection: ApiConnection, until: Until) -> None:
    light = connection.metadata_only()
    assert all("spec" not in pod for pod in light.list(PODS).items)
    assert all("spec" in pod for pod in connection.list(PODS).items)
    watch = Reflector(light, PODS, backoff=Backoff(0.01, 0.05)).start()
    try:
        until(lambda: ("pods", None) in api.watched())
        assert all("spec" not in pod for pod in watch.objects())
        asked = [accept for _, path, _, accept in api.requests if "watch=true" in path]
        assert "as=PartialObjectMetadata;" in asked[-1]
    finally:
        watch.stop()


def test_a_watch_says_what_it_met_until_it_is_well_again(
    api: ClusterApi, connection: ApiConnection, until: Until
) -> None:
    watch = Reflector(connection, NODES, backoff=Backoff(0.01, 0.05)).start()
    try:
        until(lambda: bool(api.watched()))
        assert watch.failure() is None
        api.go_away()
        until(lambda: isinstance(watch.failure(), Unavailable))
        api.come_back()
        until(lambda: watch.failure() is None)
    finally:
        watch.stop()
