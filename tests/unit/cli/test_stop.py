"""`kubectl egpu stop-admitting QUEUE`: what is sent, and what is waited for."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, tiny_api
from unit.kube.tiny_api import status as tiny_status
from vc_egpu.cli import exit_status, kubectl, stop
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import Forbidden


@pytest.fixture
def server() -> Iterator[TinyApi]:
    with tiny_api() as found:
        yield found


@pytest.mark.parametrize("undo", [[], ["--undo"]])
@pytest.mark.parametrize("meant", [[], ["research", "--all"]])
def test_a_queue_that_the_shell_left_out_is_not_the_whole_cluster(
    meant: list[str], undo: list[str], server: TinyApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stop-admitting $QUEUE` with QUEUE unset."""
    with pytest.raises(SystemExit) as ended:
        kubectl.main(["stop-admitting", *meant, *undo, "--kubeconfig", str(server.kubeconfig(tmp_path))])
    assert ended.value.code == exit_status.EXIT_USAGE
    assert "--all" in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.parametrize(("undo", "written"), [([], "true"), (["--undo"], "false")])
def test_all_is_the_switch_of_the_whole_cluster(
    undo: list[str], written: str, server: TinyApi, tmp_path: Path
) -> None:
    kubeconfig = str(server.kubeconfig(tmp_path))
    server.script = [(404, tiny_status(404, "NotFound"), {}), (201, {"metadata": {}}, {})]
    assert kubectl.main(["stop-admitting", "--all", *undo, "--kubeconfig", kubeconfig]) == exit_status.EXIT_OK
    (body,) = [body for method, _, body in server.requests if method == "POST"]
    assert body["data"] == {"stopAdmitting": written}


def test_who_may_not_close_all_queues_that_he_names_closes_none(server: TinyApi, tmp_path: Path) -> None:
    """One was being closed, and all that was told is that he may not."""
    server.script = [(201, {"metadata": {}}, {}), (403, tiny_status(403, "Forbidden", "queue b"), {})]
    with (
        closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api,
        pytest.raises(Forbidden, match="queue b"),
    ):
        stop.run(api, [docs.queue("a"), docs.queue("b")], "close", "ml", timeout_s=0)
    assert all("dryRun=All" in path for method, path, _ in server.requests if method == "POST")


def test_an_api_server_that_is_away_for_a_moment_takes_no_order_back(
    server: TinyApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "POLL_S", 0.01)
    server.put("/apis/scheduling.volcano.sh/v1beta1/queues/a", docs.queue("a", state="Closing"))
    server.script = [(201, {"metadata": {}}, {}), (503, tiny_status(503, "ServiceUnavailable"), {})]
    with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
        (outcome,) = stop.run(api, [docs.queue("a")], "close", "ml", timeout_s=30)
    assert outcome.done


def test_a_queue_that_a_later_volcano_writes_can_be_closed_too(server: TinyApi, tmp_path: Path) -> None:
    api = ApiConnection.connect(server.kubeconfig(tmp_path))
    odd = docs.queue("odd")
    odd["spec"] |= {"weight": 0, "dequeueStrategy": "by-magic"}
    server.script = [(201, {"metadata": {"name": "odd-closequeue-x"}}, {})]
    (outcome,) = stop.run(api, [odd], "close", "ml", timeout_s=0)
    api.close()
    assert not outcome.done
    sent = [body for method, _, body in server.requests if method == "POST"]
    assert [(body["action"], body["target"]["name"]) for body in sent] == [("CloseQueue", "odd")]
