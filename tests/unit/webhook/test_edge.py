"""The edge: TLS kept by itself, reviews over HTTPS, bodies that are none, an API server that is silent."""

import asyncio
import base64
import io
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rigs.api_server import StandIn
from unit.webhook.pod_reviews import waits
from unit.webhook.world import QUEUES, TABLE, Json, container, patched, pod
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.webhook.protocol.context import Settings
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.protocol.questions import Access, Subject
from vc_egpu.webhook.serving.caches import Caches
from vc_egpu.webhook.serving.certificates import Material
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.options import OptionsError, parse_options
from vc_egpu.webhook.serving.oracle import ALLOWED_FOR_S, ASK_AGAIN_S, DENIED_FOR_S, AccessMemory, Oracle
from vc_egpu.webhook.serving.reviewer import PATHS, Reviewer, patch_of
from vc_egpu.webhook.serving.server import MAX_BODY_BYTES, WebhookServer
from vc_egpu.webhook.serving.tls import TlsKeeper, TlsSettings, bundle_operations

HOSTS = ("127.0.0.1",)
Post = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


def objects() -> dict[str, list[Json]]:
    return {
        "queues": json.loads(json.dumps(list(QUEUES.values()))),
        "namespaces": [{"metadata": {"name": "team-a"}}],
        "priorityclasses": [],
        "podgroups": [],
        "jobs": [],
        "nodes": [],
    }


def review_of(obj: Json, operation: str = "CREATE") -> bytes:
    request = {
        "uid": "u-1",
        "operation": operation,
        "namespace": "team-a",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"], "extra": {"k": ["v"]}},
        "object": obj,
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    ).encode()


def serve(stand_in: StandIn, folder: Path, story: Callable[[Post, WebhookServer], Awaitable[None]]) -> None:
    """Run a story against a server whose certificate the client verifies against the kept CA."""

    async def run() -> None:
        api = ApiConnection.connect(stand_in.write_kubeconfig(folder), timeout_s=30)
        tls = TlsKeeper(api, TlsSettings("system", HOSTS))
        tls.step()
        caches, oracle, metrics = Caches(api).start(), Oracle(api), Metrics.create()
        reviewer = Reviewer(caches, oracle, Settings(), metrics)
        reviewer.table = TABLE
        server = WebhookServer(reviewer, metrics, lambda: ", ".join(caches.unsynced()))
        port, metrics_port = await server.start("127.0.0.1", 0, tls.context, 0)
        bundle = base64.b64decode(stand_in.secrets["vc-egpu-webhook-tls"]["data"]["ca.crt"]).decode()
        context = ssl.create_default_context(cadata=bundle)
        try:
            async with aiohttp.ClientSession() as session:
                while (await session.get(f"http://127.0.0.1:{metrics_port}/readyz")).status != 200:
                    await asyncio.sleep(0.01)

                async def post(path: str, body: bytes) -> tuple[int, bytes]:
                    url = f"https://127.0.0.1:{port}{path}"
                    async with session.post(url, data=io.BytesIO(body), ssl=context) as answer:
                        return answer.status, await answer.read()

                await story(post, server)
                exposed = await (await session.get(f"http://127.0.0.1:{metrics_port}/metrics")).text()
                assert "egpu_webhook_review_seconds" in exposed
        finally:
            await server.stop()
            caches.stop()
            oracle.close()
            api.close()

    asyncio.run(run())


def response(answer: tuple[int, bytes]) -> Json:
    assert answer[0] == 200, answer
    found: Json = json.loads(answer[1])["response"]
    return found


def test_a_pod_is_completed_over_https_and_access_is_asked_once(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            obj = pod(container(vgpu_h20=1, vgpu_memory=1000))
            answers = await asyncio.gather(*(post("/mutate/pods", review_of(obj)) for _ in range(10)))
            for answer in answers:
                assert response(answer)["uid"] == "u-1"
                done = patched(obj, Decision(allowed=True, patch=tuple(patch_of(answer[1]))))
                assert waits(done)

        serve(stand_in, tmp_path, story)
        assert stand_in.access_reviews == 2, "one for alice, one for the service account"


def test_a_limit_that_no_node_enforces_is_told_of_once_nodes_are_known(tmp_path: Path) -> None:
    card = NodeCard(uuid="GPU-1", index=0, model="h20", memory_mib=98304, isolation="none")
    told = {names.NODE_CARDS: NodeCards(cards=(card,)).encode()}
    node = {"metadata": {"name": "n1", "annotations": told}, "status": {"images": ["large"]}}
    with StandIn({**objects(), "nodes": [node]}) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            obj = pod(container(vgpu_h20=1, vgpu_memory=1000))
            while not (said := response(await post("/mutate/pods", review_of(obj))).get("warnings")):
                await asyncio.sleep(0.01)  # no review waits for nodes
            assert "no node with h20 has the isolation library" in said[0]

        serve(stand_in, tmp_path, story)


def test_a_refusal_is_a_403_with_the_sentence(tmp_path: Path) -> None:
    denied = frozenset(f"{user} use queues a" for user in ("alice", "system:serviceaccount:team-a:default"))
    with StandIn(objects(), denied) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            found = response(await post("/mutate/pods", review_of(pod())))
            assert found["allowed"] is False
            assert found["status"]["code"] == 403
            assert "may not use queue 'a'" in found["status"]["message"]

        serve(stand_in, tmp_path, story)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"kind":"AdmissionReview","request":[]}', 400),
        (b'{"kind":"AdmissionReview","request":{"operation":"CREATE"}}', 400),
        (b"x" * (MAX_BODY_BYTES + 1), 413),
    ],
    ids=["empty", "half", "list", "object", "no request", "no object", "huge"],
)
def test_bodies_that_are_no_review(tmp_path: Path, body: bytes, status: int) -> None:
    with StandIn(objects()) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            try:
                assert (await post("/mutate/pods", body))[0] == status
            except aiohttp.ClientOSError:
                assert status == 413, "the server may hang up on who sends too much"
            assert response(await post("/mutate/pods", review_of(pod(container()))))["allowed"]

        serve(stand_in, tmp_path, story)


SHAPES: list[Any] = [
    None,
    0,
    "x",
    [],
    {},
    [[]],
    [None],
    {"containers": 5},
    {"containers": [7, None, {"name": 3}]},
]


def test_objects_of_any_shape_are_answered(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            for path in (
                "/mutate/pods",
                "/mutate/jobs",
                "/validate/jobs",
                "/validate/queues",
                "/validate/commands",
            ):
                for shape in SHAPES:
                    for obj in (
                        {"spec": shape},
                        {"metadata": shape, "spec": {"tasks": shape, "containers": shape}},
                    ):
                        for operation in ("CREATE", "UPDATE"):
                            answer = await post(path, review_of(obj, operation))
                            assert answer[0] == 200, (path, obj)
                            assert "its log says why" not in answer[1].decode(), (path, obj)

        serve(stand_in, tmp_path, story)


def test_an_api_server_that_does_not_answer_refuses_for_now(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            stand_in.broken = True
            found = response(await post("/mutate/pods", review_of(pod())))
            assert found["allowed"] is False
            assert found["status"]["code"] == 503
            # A member that asks for nothing: the API server's failure policy (Ignore) lets it come.
            named = pod(container(), annotations={"scheduling.k8s.io/group-name": "unknown"})
            assert (await post("/mutate/members", review_of(named)))[0] == 503
            stand_in.broken = False
            assert response(await post("/mutate/members", review_of(named)))["allowed"]
            assert response(await post("/mutate/pods", review_of(pod())))["allowed"]

        serve(stand_in, tmp_path, story)


def test_a_fault_of_ours_keeps_nobody_out_who_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with StandIn(objects()) as stand_in:

        async def story(post: Post, _server: WebhookServer) -> None:
            for path in ("/mutate/pods", "/mutate/members"):
                monkeypatch.setitem(PATHS, path, fail)
            assert response(await post("/mutate/pods", review_of(pod())))["allowed"] is False
            assert (await post("/mutate/members", review_of(pod(container()))))[0] == 503

        serve(stand_in, tmp_path, story)


def test_while_it_drains_it_answers_and_says_that_it_is_not_ready(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:

        async def story(post: Post, server: WebhookServer) -> None:
            await server.drain(0)
            assert response(await post("/mutate/pods", review_of(pod())))["allowed"]

        serve(stand_in, tmp_path, story)


# --- certificates in the Secret and the configurations -------------------------------------------------


def test_two_replicas_agree_on_one_certificate(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:
        api = ApiConnection.connect(stand_in.write_kubeconfig(tmp_path))
        first, second = (TlsKeeper(api, TlsSettings("system", HOSTS)) for _ in range(2))
        first.step()
        second.step()
        assert first.not_after == second.not_after
        assert stand_in.secrets["vc-egpu-webhook-tls"]["metadata"]["resourceVersion"] == "1"


def test_a_spoilt_secret_is_written_anew(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:
        api = ApiConnection.connect(stand_in.write_kubeconfig(tmp_path))
        keeper = TlsKeeper(api, TlsSettings("system", HOSTS))
        keeper.step()
        secret = stand_in.secrets["vc-egpu-webhook-tls"]
        secret["data"]["tls.key"] = base64.b64encode(b"spoilt").decode()
        keeper.step()
        data = stand_in.secrets["vc-egpu-webhook-tls"]["data"]
        Material.from_secret({key: base64.b64decode(value) for key, value in data.items()})
        assert keeper.reloads == 2


def test_the_bundle_goes_into_every_webhook_of_both_configurations(tmp_path: Path) -> None:
    with StandIn(objects()) as stand_in:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            webhooks: list[Json] = [{"name": name, "clientConfig": {"service": {}}} for name in ("a", "b")]
            stand_in.configurations[kind] = {"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}
        api = ApiConnection.connect(stand_in.write_kubeconfig(tmp_path))
        TlsKeeper(api, TlsSettings("system", HOSTS)).step()
        bundle = stand_in.secrets["vc-egpu-webhook-tls"]["data"]["ca.crt"]
        for configuration in stand_in.configurations.values():
            assert [hook["clientConfig"]["caBundle"] for hook in configuration["webhooks"]] == [bundle] * 2
            assert not bundle_operations(configuration, bundle)
            assert bundle_operations(configuration, "other")[0]["op"] == "test"


# --- what is remembered, and settings ------------------------------------------------------------------


def question(name: str) -> Access:
    return Access(Subject("alice"), "use", "g", "queues", name)


def test_answers_are_remembered_for_a_while_and_asked_again_while_in_use() -> None:
    now = 0.0
    memory = AccessMemory(lambda: now, limit=2)
    memory.put(question("a"), allowed=True)
    memory.put(question("b"), allowed=False)
    now = DENIED_FOR_S
    assert memory.get(question("b")) is None
    assert memory.get(question("a")) is True
    assert not memory.due
    now = ASK_AGAIN_S
    assert memory.get(question("a")) is True
    assert list(memory.due) == [question("a")]
    now = ALLOWED_FOR_S
    assert memory.get(question("a")) is None
    for name in "cde":
        memory.put(question(name), allowed=True)
    assert memory.get(question("c")) is None, "the oldest goes first"


def test_settings_flags_over_environment_over_file(tmp_path: Path) -> None:
    path = tmp_path / "webhook.yaml"
    path.write_text("schedulerName: volcano\nmaxGangMembers: 10\nport: 1000\n")
    environment = {"VC_EGPU_WEBHOOK_PORT": "2000", "POD_NAMESPACE": "elsewhere"}
    options = parse_options(["--config", str(path), "--max-gang-members", "20"], environment)
    assert options.settings.scheduler_name == "volcano"
    assert options.settings.max_gang_members == 20
    assert options.file.port == 2000
    assert options.tls.hosts[0] == "vc-egpu-webhook.elsewhere.svc"
    assert "system:serviceaccount:elsewhere:vc-egpu-jobs" in options.settings.job_controllers


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "70000"], "port"),
        (["--scheduler-name", "mine"], "schedulerName 'mine'"),
        (["--max-gang-members", "0"], "maxGangMembers"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_settings_that_cannot_be_used_are_named(flags: list[str], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        parse_options(flags, {})


@pytest.mark.parametrize("text", ["port: [", "port: !!int ''"])
def test_a_file_that_is_no_yaml_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "webhook.yaml"
    path.write_text(text)
    with pytest.raises(OptionsError, match=str(path)):
        parse_options(["--config", str(path)], {})
