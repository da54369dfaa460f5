"""`kubectl egpu top`: two looks at the agents' pages become what each container uses now."""

from dataclasses import replace

from unit.node.granted import grant
from vc_egpu.cli.live import forms, top
from vc_egpu.cli.views import render
from vc_egpu.metrics.text import text_of
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.processes import Use
from vc_egpu_node.metrics import Metrics, View


def page(seconds: float, *, told: bool = True) -> str:
    """What an agent shows of two containers, one of which computes."""
    grants = [
        replace(grant(name, ("GPU-0", 1024, 25)), namespace="ml", pod=name, container="main")
        for name in ("busy", "idle")
    ]
    view = View(
        "n1",
        Observation(processes={"GPU-0": ()}),
        NodeCards(),
        grants=grants,
        uses=[Use("ml", "busy", "main", "GPU-0", 512, 50)],
        compute_s={("ml", "busy", "main", "GPU-0"): seconds},
        sees_processes=told,
    )
    return text_of(Metrics(lambda: view).registry.collect()).decode()


def look(at_s: float, text: str, node: str = "n1") -> top.Look:
    return top.Look(node, at_s, top.values_of(text))


def test_the_busiest_comes_first_with_what_it_used_between_two_looks() -> None:
    found = top.report([look(10.0, page(5.0))], [look(12.0, page(6.0))], None)
    busy, idle = found.containers
    assert (busy.pod, busy.busy_percent, busy.used_mib, busy.granted_mib) == ("ml/busy", 50.0, 512, 1024)
    assert (idle.pod, idle.busy_percent, idle.used_mib, idle.cores_percent) == ("ml/idle", 0.0, 0, 25)
    with (console := render.console()).capture() as captured:
        console.print(top.shown(found))
    assert "ml/busy  main       n1    GPU-0       512         1024    50.0       25" in captured.get()


def test_what_the_driver_does_not_tell_is_no_zero() -> None:
    found = top.report([look(10.0, page(5.0, told=False))], [look(12.0, page(6.0, told=False))], None)
    said = {row.pod: (row.used_mib, row.busy_percent) for row in found.containers}
    assert said == {"ml/idle": (None, None), "ml/busy": (None, 50.0)}  # its library tells of its time
    assert "not told by the driver" in found.notes[0]


def test_an_agent_that_was_started_between_the_looks_has_gone_back_to_zero() -> None:
    found = top.report([look(10.0, page(500.0))], [look(12.0, page(1.0))], None)
    assert {row.busy_percent for row in found.containers} == {0.0}


def test_an_agent_that_does_not_answer_is_named() -> None:
    silent = top.Look("n2", 12.0, {}, "refused")
    found = top.report([look(10.0, page(5.0)), silent], [look(12.0, page(6.0)), silent], None)
    assert len(found.containers) == 2
    assert found.notes == ("n2 did not answer",)


def test_others_are_left_out_and_any_column_orders_the_rows() -> None:
    found = top.report([look(10.0, page(5.0))], [look(12.0, page(6.0))], "elsewhere")
    assert found.containers == ()
    both = top.report([look(10.0, page(5.0))], [look(12.0, page(6.0))], "ml")
    assert [row.pod for row in forms.ordered(both, "pod:desc").containers] == ["ml/idle", "ml/busy"]
