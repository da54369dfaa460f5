"""Gangs that are planned before they have pods: what their programs need is read off the Job."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, added, group, node
from unit.admission.test_surroundings import world
from unit.admission.test_templates import job
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.serving.foresight.asked_jobs import asked
from vc_egpu.admission.state.gangs import NO_TEMPLATE
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.environments.needs import Needs
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.needs.file import followed
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.tables.file import Look
from vc_egpu.volcano.words import names

OWN = EnvironmentTable.from_yaml('{rows: [{when: "qwen==3", needs: "cuda>=13.0"}]}')


def needing(
    needs: str = "", *, env: dict[str, str] | None = None, image: str = "reg/any:1"
) -> dict[str, Any]:
    made = job()
    template = made["spec"]["tasks"][0]["template"]
    if needs:
        template["metadata"]["annotations"][names.NEEDS] = needs
    template["spec"]["containers"][0] |= {
        "image": image,
        "env": [{"name": "PATH", "value": "/bin"}]
        + [{"name": name, "value": value} for name, value in (env or {}).items()],
    }
    return made


def needs_of(made: dict[str, Any], environments: EnvironmentTable | None = None) -> Needs:
    """As read off what the mirror keeps of the Job, and off the whole Job: they say the same."""
    kept, whole = (
        enqueue.template(document, TABLE, environments=environments)
        for document in (trim.of("jobs", made), made)
    )
    assert kept == whole
    [(_, _, shape)] = kept.rows
    return shape.needs


def pending(made: dict[str, Any], mirror: Mirror) -> enqueue.Pending:
    mirror.apply("jobs", added(trim.of("jobs", made)))
    mirror.apply("podgroups", added(group(phase="Pending")))
    found = enqueue.Pending()
    found.look("default/g", mirror, 0.0)
    found.plan_from_templates(mirror, enqueue.GRACE_S)
    return found


def test_what_a_user_writes_on_the_template_counts_before_there_are_pods() -> None:
    needs = needs_of(needing("cuda>=12.4,driver>=550"))
    assert (needs.text, needs.presumed) == ("cuda>=12.4,driver>=550", False)
    assert [[str(atom) for atom in way] for way in needs.ways] == [["cuda>=12.4", "driver>=550"]]


def test_variables_and_images_of_the_template_count_where_its_user_says_nothing() -> None:
    said = needs_of(needing(env={"NVIDIA_REQUIRE_CUDA": "cuda>=12.6"}))
    assert (said.presumed, [str(atom) for atom in said.ways[0]]) == (True, ["cuda>=12.6"])
    disabled = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.6", "NVIDIA_DISABLE_REQUIRE": "1"}
    assert not needs_of(needing(env=disabled)).ways
    rows = EnvironmentTable.from_yaml('{images: [{image: "reg/new:*", needs: "cuda>=13.0"}]}')
    assert [str(atom) for atom in needs_of(needing(image="reg/new:1"), rows).ways[0]] == ["cuda>=13.0"]


def test_a_variable_that_is_taken_from_elsewhere_says_nothing() -> None:
    made = needing()
    made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "CUDA_VERSION", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        {"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=12.6 " * 1000},
    ]
    assert not needs_of(made).ways


def test_each_alternative_of_a_template_has_its_own_needs() -> None:
    made = needing()
    template = made["spec"]["tasks"][0]["template"]
    template["spec"]["containers"][0]["resources"]["limits"] = {"volcano.sh/vgpu": "1"}
    template["metadata"]["annotations"][names.ALTERNATIVES] = json.dumps(
        [{"name": "new", "model": "h20", "needs": "cuda>=13.0"}, {"name": "old", "model": "h20"}]
    )
    [(_, _, shape)] = enqueue.template(trim.of("jobs", made), TABLE).rows
    found = {option.name: shape.as_option(option.name) for option in shape.options}
    assert {name: one.needs.text for name, one in found.items() if one is not None} == {
        "new": "cuda>=13.0",
        "old": "",
    }


@pytest.mark.parametrize("needs", ["torhc==2", "torch==2.99", "cuda>=", "x" * 513])
def test_a_job_whose_pods_the_door_will_refuse_gets_no_plan(needs: str) -> None:
    """Its table may have changed since the Job came. No other gang goes for pods that are never made."""
    assert enqueue.template(needing(needs), TABLE) == NO_TEMPLATE


def test_the_plan_heeds_the_node_and_says_what_is_lacking() -> None:
    mirror = world()
    pending(needing("driver>=570"), mirror)
    [verdict] = decide(mirror.snapshot(), Policy(), 5.0).verdicts.values()
    assert verdict.reason is Reason.WAITING_FOR_ENVIRONMENT
    assert "driver>=570" in verdict.message
    newer = node()
    newer["metadata"]["labels"] = {**(newer["metadata"].get("labels") or {}), **DRIVER_570}
    mirror.apply("nodes", added(newer))
    assert decide(mirror.snapshot(), Policy(), 6.0).admissions


DRIVER_570 = {"nvidia.com/cuda.driver-version.full": "570.26"}


def test_a_table_that_changes_is_read_and_templates_with_it(tmp_path: Path) -> None:
    file = tmp_path / "environments.yaml"
    file.write_text('rows: [{when: "qwen==3", needs: "cuda>=13.0"}]')
    read = followed(file)
    assert read.look() is Look.NEWS
    assert read.look() is Look.SAME, "nothing changed"
    mirror = world()
    mirror.around.take_environments(read.table)
    found = pending(needing("qwen==3"), mirror)
    [(_, _, shape)] = mirror.templates["default/g"].rows
    assert [str(atom) for atom in shape.needs.ways[0]] == ["cuda>=13.0"]
    file.write_text('rows: [{when: "qwen==3", needs: "cuda>=14.0.0"}]')
    assert read.look() is Look.NEWS
    mirror.around.take_environments(read.table)
    found.plan_from_templates(mirror, enqueue.GRACE_S)
    [(_, _, shape)] = mirror.templates["default/g"].rows
    assert [str(atom) for atom in shape.needs.ways[0]] == ["cuda>=14.0.0"]
    file.write_text("rows: [{")
    assert read.look() is Look.BROKEN
    assert [row.needs for row in read.table.rows] == ["cuda>=14.0.0"], "the last good one stays"
    file.unlink()
    assert read.look() is Look.BROKEN


def test_a_question_about_a_job_heeds_what_it_needs() -> None:
    [(_, _, shape)] = asked(needing("qwen==3"), "default", TABLE, 0.0, OWN).tasks
    assert [str(atom) for atom in shape.needs.ways[0]] == ["cuda>=13.0"]
