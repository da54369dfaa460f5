"""`kubectl egpu cards`: every card and who is on it."""

import orjson
import pytest
from unit.cli import documents as docs
from vc_egpu.cli.live import forms
from vc_egpu.cli.views import cards, others, render
from vc_egpu.cli.views import nodes as nodes_view
from vc_egpu.jobsapi.client import JobsClient
from vc_egpu.kube.server import Answer as HttpAnswer
from vc_egpu.kube.server import GetServer
from vc_egpu.volcano.words.annotations import Cards, NodeCard
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CARDS, CORDONED_CARDS


def shown(report: cards.CardsReport) -> str:
    console = render.console()
    with console.capture() as captured:
        console.print(render.cards(report))
    return captured.get()


def test_training_and_inference_on_one_card() -> None:
    pods = [
        docs.pod("train-0", cards={"GPU-a": (61440, 100)}, share_class="low"),
        docs.pod("infer-0", cards={"GPU-a": (30720, 50)}, share_class="high"),
    ]
    report = cards.report([docs.node("n1", docs.card("GPU-a"), docs.card("GPU-b", 1))], pods)
    shared, free = report.cards
    assert [sharer.pod for sharer in shared.sharers] == ["ml/infer-0", "ml/train-0"]
    assert (shared.used_mib, shared.memory_mib) == (92160, docs.MEMORY_MIB)
    assert (shared.cores_high_percent, shared.cores_low_percent) == (50, 100)
    assert (free.used_mib, free.sharers, free.state) == (0, (), "ok")
    text = shown(report)
    assert "92160 of 98304" in text
    assert "50|100" in text
    assert "ml/train-0" in text


def test_unset_counts_on_both_sides() -> None:
    pods = [docs.pod("job-0", cards={"GPU-a": (1024, 30)})]
    (row,) = cards.report([docs.node("n1", docs.card("GPU-a"))], pods).cards
    assert (row.cores_high_percent, row.cores_low_percent) == (30, 30)


def test_what_is_over_holds_no_card() -> None:
    pods = [
        docs.pod("done-0", cards={"GPU-a": (1024, 10)}, phase="Succeeded"),
        docs.pod("bad-0", cards={"GPU-a": (1024, 10)}, phase="Failed"),
    ]
    (row,) = cards.report([docs.node("n1", docs.card("GPU-a"))], pods).cards
    assert row.used_mib == 0


def test_the_table_s_memory_counts_not_the_driver_s() -> None:
    table = ModelTable.from_yaml("models: [{name: h20, memoryMiB: 97871}]")
    (row,) = cards.report([docs.node("n1", docs.card("GPU-a"))], [], table).cards
    assert row.memory_mib == 97871


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (docs.node("n1", docs.card("GPU-a", healthy=False, reason="XID 79")), "ill: XID 79"),
        (docs.node("n1", docs.card("GPU-a", offered=False, reason="too small")), "not offered: too small"),
        (docs.node("n1", docs.card("GPU-a"), annotations={CORDONED_CARDS: "GPU-x, GPU-a"}), "cordoned"),
        (docs.node("n1", docs.card("GPU-a"), unschedulable=True), "node cordoned"),
        (docs.node("n1", docs.card("GPU-a"), ready="False"), "node not ready"),
        (docs.node("n1", docs.card("GPU-a"), problem="garbage"), "node takes nothing"),
        (docs.node("n1", docs.card("GPU-a")), "ok"),
    ],
)
def test_why_a_card_takes_nothing_new(node: docs.Json, state: str) -> None:
    assert cards.report([node], []).cards[0].state == state


def test_garbage_on_a_node_is_said_and_harms_no_other() -> None:
    bad = docs.node("n1")
    bad["metadata"]["annotations"]["egpu.volcano.sh/node-cards"] = "{nonsense"
    report = cards.report([bad, docs.node("n2", docs.card("GPU-b"))], [])
    assert [row.node for row in report.cards] == ["n2"]
    assert any("n1 takes nothing" in note and "malformed" in note for note in report.notes)


def test_an_annotation_of_another_pod_is_not_believed() -> None:
    forged = docs.pod("a", cards={"GPU-a": (1024, 10)})
    forged["metadata"]["uid"] = "another"
    assert cards.report([docs.node("n1", docs.card("GPU-a"))], [forged]).cards[0].sharers == ()


def test_shares_of_pods_out_of_sight_are_counted() -> None:
    held = docs.card("GPU-a", held=("uid-seen", "uid-unseen"))
    seen = docs.pod("seen", cards={"GPU-a": (1024, 10)})
    report = cards.report([docs.node("n1", held)], [seen], partial="you may list pods in ml only")
    assert report.cards[0].unseen == 1
    assert "you may list pods in ml only" in report.notes
    text = shown(report)
    assert "1 pod that is not seen here" in text
    assert "1024+? of 98304  10+?|10+?" in text, "a card that others fill is not shown as free"
    assert "note: +? stands for what pods have that are not seen here" in text
    alone = cards.report([docs.node("n1", docs.card("GPU-a", held=("uid-seen",)))], [seen])
    assert "?" not in shown(alone)


def test_a_cordon_names_cards_by_uuid_which_are_shown_for_one_node() -> None:
    node = docs.node("n1", docs.card("GPU-a"), annotations={CORDONED_CARDS: "GPU-A"})
    report = cards.report([node], [])
    assert "n1 cordons GPU-A, which it has not" in report.notes
    assert "GPU-a" not in shown(report)
    console = render.console()
    with console.capture() as captured:
        console.print(render.cards(report, uuids=True))
    assert "0 GPU-a" in captured.get()


def linked_node() -> docs.Json:
    """Two cards with two NVLinks between them, and a third that is far from both."""
    return docs.node(
        "n1",
        docs.card("GPU-a", links={"GPU-b": 2}, link_mb_s=25_000, near="-ns"),
        docs.card("GPU-b", 1, links={"GPU-a": 2}, link_mb_s=25_000, near="n-s"),
        docs.card("GPU-c", 2, near="ss-"),
    )


def test_the_set_of_a_pod_and_its_score_are_shown() -> None:
    pods = [
        docs.pod("pair", cards={"GPU-a": (1024, 10), "GPU-b": (1024, 10)}),
        docs.pod("far", cards={"GPU-a": (1024, 10), "GPU-c": (1024, 10)}),
        docs.pod("one", cards={"GPU-a": (1024, 10)}),
    ]
    report = cards.report([linked_node()], pods)
    first, _, third = report.cards
    assert (first.links, third.links) == ("NV2 1; SYS 2", "SYS 0,1")
    sets = {sharer.pod: sharer.card_set for sharer in first.sharers}
    assert sets == {
        "ml/pair": "NV2 at worst, 50 GB/s; ring 50 GB/s",
        "ml/far": "SYS at worst, 6 GB/s; ring 6 GB/s",
        "ml/one": "",
    }
    assert "NV2 at worst, 50 GB/s" in shown(report)
    assert "SET" not in shown(cards.report([docs.node("n1", docs.card("GPU-a"))], []))


def test_no_cards_at_all_points_to_the_doctor() -> None:
    plain = {"metadata": {"name": "n1"}, "status": {}}
    report = cards.report([plain], [])
    assert "doctor" in shown(report)


def test_json_has_units_in_its_names() -> None:
    report = cards.report([docs.node("n1", docs.card("GPU-a"))], [])
    (row,) = orjson.loads(forms.as_json(report))["cards"]
    assert row["memory_mib"] == docs.MEMORY_MIB
    assert {"used_mib", "cores_high_percent", "cores_low_percent"} <= set(row)


def test_no_number_is_cut_off_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    pod = docs.pod("a-pod-with-a-name-of-some-length", cards={"GPU-a": (61440, 100)})
    text = shown(cards.report([docs.node("n1", docs.card("GPU-a"))], [pod]))
    assert "61440 of 98304" in text
    assert "a-pod-with-a-name-of-some-length" in text


def test_low_gangs_of_several_pods_are_named_where_high_is_on_their_card() -> None:
    """Their launches are not held: high's latency is that of the driver's time slices."""
    pods = [
        docs.pod("train-0", cards={"GPU-a": (1024, 10)}, share_class="low"),
        docs.pod("train-1", cards={"GPU-b": (1024, 10)}, share_class="low"),
        docs.pod("single-0", cards={"GPU-a": (1024, 10)}, share_class="low"),
        docs.pod("infer-0", cards={"GPU-a": (1024, 10)}, share_class="high"),
    ]
    for pod in pods[:2]:
        own = Cards.decode(pod["metadata"]["annotations"][CARDS])
        pod["metadata"]["annotations"][CARDS] = own.model_copy(update={"gang_pods": 2}).encode()
    (note,) = cards.report([docs.node("n1", docs.card("GPU-a"), docs.card("GPU-b", 1))], pods).notes
    assert note.startswith("n1 card 0: ml/train-0 is one of 2 pods of a low gang.")


def test_three_kinds_of_cards_and_their_slices_stand_in_one_table() -> None:
    def cut(uuid: str, model: str, memory_mib: int, isolation: str) -> docs.Json:
        card = NodeCard(
            uuid=uuid, index=0, model=model, memory_mib=memory_mib, stack=False, isolation=isolation
        )
        return docs.node(f"node-{model}", card)

    def on(uuid: str, node: str, memory_mib: int, cores: int, template: str) -> docs.Json:
        made = docs.pod(f"on-{node}", cards={uuid: (memory_mib, cores)})
        said = made["metadata"]["annotations"]
        held = Cards.decode(said[CARDS])
        (share,) = held.containers["main"]
        share = share.model_copy(update={"slice": template})
        said[CARDS] = held.model_copy(
            update={"node": f"node-{node}", "containers": {"main": (share,)}}
        ).encode()
        made["spec"]["nodeName"] = f"node-{node}"
        return made

    nodes = [
        cut("GPU-1", "h100", 81559, "hardware"),
        cut("DIE-1", "910b3", 65536, "hardware"),
        cut("DCU-1", "k100-ai", 65520, "vendor-file"),
        docs.node("node-h20", docs.card("GPU-2")),
    ]
    pods = [
        on("GPU-1", "h100", 9152, 14, "1g.10gb"),
        on("DIE-1", "910b3", 16384, 25, "vir05_1c_16g"),
        on("DCU-1", "k100-ai", 16380, 25, "cu30"),
    ]
    report = cards.report(nodes, pods)
    assert {(row.model, *(one.slice for one in row.sharers)) for row in report.cards} == {
        ("h100", "1g.10gb"),
        ("910b3", "vir05_1c_16g"),
        ("k100-ai", "cu30"),
        ("h20",),
    }
    title, *rows = shown(report).splitlines()
    assert "SLICE" in title and "SET" not in title
    assert [word in row for row in rows for word in ("vir05_1c_16g",)].count(True) == 1


def test_a_tenant_sees_what_others_hold_where_the_jobs_api_tells() -> None:
    nodes = [docs.node("n1", docs.card("GPU-a", held=("uid-ml-train-0", "uid-web-chat-0")))]
    pods = [docs.pod("train-0", cards={"GPU-a": (1024, 10)})]
    report = cards.report(nodes, pods, partial="you may list pods in namespace ml only")
    assert "1024+? of 98304" in shown(report)
    card = {"index": 0, "model": "h20", "memory_mib": 98304, "takes_shares": True}
    view = {
        "revision": 1, "everything": False, "namespaces": ["ml"], "queues": [], "waiting": [],
        "nodes": [{"name": "n1", "cards": [{**card, "held_by_others": {"pods": 3, "memory_mib": 2000}}]}],
        "waiting_of_others": 0, "is_cut_short": False,
    }  # fmt: skip
    said = [HttpAnswer(200, orjson.dumps(view), "application/json")]
    server = GetServer(("127.0.0.1", 0), lambda _: said[0]).start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        text = shown(others.with_others(report, JobsClient(url, "ann"), "ml"))
        assert "3024 of 98304" in text
        assert "3 pods of others" in text
        assert "+?" not in text
        said[0] = HttpAnswer(429, b"")
        text = shown(others.with_others(report, JobsClient(url, "ann"), "ml"))
        assert "1024+? of 98304" in text
        assert "what others hold is not known" in text
    finally:
        server.stop()


def test_each_card_says_what_holds_containers_to_their_memory() -> None:
    words = ("library", "driver", "none")
    nodes = [docs.node("n1", *(docs.card(f"GPU-{at}", at, isolation=word) for at, word in enumerate(words)))]
    report = cards.report(nodes, [])
    assert [row.isolation for row in report.cards] == list(words)
    head, *lines = shown(report).splitlines()
    assert [line[head.index("HELD BY") :].split()[0] for line in lines[:3]] == list(words)


def test_each_card_says_what_shares_its_time_where_that_is_not_the_library() -> None:
    nodes = [
        docs.node("n1", docs.card("GPU-1", isolation="driver"), compute="mps", mps_namespace="a"),
        docs.node("n2", docs.card("GPU-2", stack=False), compute="timeslice"),
    ]
    assert [row.isolation for row in cards.report(nodes, []).cards] == ["driver+mps", "library+timeslice"]
    rows = nodes_view.report(nodes).nodes
    assert [(row.isolation, row.parts) for row in rows] == [
        ("driver+mps", "any size"),
        ("library+timeslice", "any size"),
    ]
