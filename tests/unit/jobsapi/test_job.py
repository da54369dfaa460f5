"""A request becomes the very Job that the webhook takes."""

import json

import pytest
import yaml
from unit.jobsapi.stand_in import wanted
from vc_egpu.jobsapi.catalogue import Catalogue, CatalogueError, problems, shipped
from vc_egpu.jobsapi.check import main
from vc_egpu.jobsapi.job import Json, volcano_job
from vc_egpu.jobsapi.request import JobRequest, RequestError, checked
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.needs.table import shipped as environments
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable


def job(**fields: object) -> Json:
    return volcano_job(checked(JobRequest, wanted(**fields)), "lab")


def container(document: Json) -> Json:
    found: Json = document["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    return found


def test_amounts_env_and_commands_stand_where_a_pod_has_them() -> None:
    made = job(
        count=2,
        memory=1024,
        cores=30,
        cpu_milli=500,
        host_memory_mib=2048,
        env={"A": "b"},
        command=["x"],
        args=["y"],
    )
    found = container(made)
    assert found["resources"]["limits"] == {
        "volcano.sh/vgpu-h20": 2,
        "volcano.sh/vgpu-memory": 1024,
        "volcano.sh/vgpu-cores": 30,
        "cpu": "500m",
        "memory": "2048Mi",
    }
    assert (found["command"], found["args"], found["env"]) == (["x"], ["y"], [{"name": "A", "value": "b"}])
    Job.model_validate(made)


def test_percent_of_memory_has_a_limit_of_its_own() -> None:
    assert container(job(memory="25%"))["resources"]["limits"]["volcano.sh/vgpu-memory-percentage"] == 25


def test_several_models_and_needs_are_annotations_of_the_template() -> None:
    made = job(model=None, models=["h20", "t4"], needs="cuda>=12.4", priority="low")
    annotations = made["spec"]["tasks"][0]["template"]["metadata"]["annotations"]
    assert annotations == {names.USE_MODELS: "h20,t4", names.NEEDS: "cuda>=12.4", names.PRIORITY: "low"}
    assert container(made)["resources"]["limits"] == {"volcano.sh/vgpu": 1}


def test_alternatives_are_the_annotation_of_the_job() -> None:
    one = {"name": "h20", "image": "reg/a", "memory": 1024, "env": {"X": "1"}, "args": ["--npu"]}
    made = job(model=None, image=None, alternatives=[one], order="best")
    annotations = made["metadata"]["annotations"]
    assert json.loads(annotations[names.ALTERNATIVES]) == [
        {
            "name": "h20",
            "memory": 1024,
            "image": {"main": "reg/a"},
            "env": {"main": {"X": "1"}},
            "args": {"main": ["--npu"]},
        }
    ]
    assert annotations[names.ALTERNATIVES_ORDER] == "best"
    assert container(made)["image"] == "reg/a"


def test_a_user_of_its_own_meets_the_restricted_standard() -> None:
    spec = job(run_as_user=1000)["spec"]["tasks"][0]["template"]["spec"]
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True, "runAsUser": 1000,
    }  # fmt: skip
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_the_worked_examples_expand_to_jobs() -> None:
    assert problems(shipped(), None, environments()) == ()
    for entry in shipped().models:
        request = checked(JobRequest, wanted(model=None, image=None, catalogue=entry.name, env={"A": "1"}))
        made = volcano_job(shipped().expanded(request), "lab")
        listed = json.loads(made["metadata"]["annotations"][names.ALTERNATIVES])
        assert [one["name"] for one in listed] == [one.name for one in entry.alternatives]
        assert {"name": "A", "value": "1"} in container(made)["env"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [{name: a}]", "models.0.alternatives"),
        ("models: [{name: a, alternatives: [{name: h20}]}]", "has none"),
        ("models: [{name: A, alternatives: [{name: h20, image: i}]}]", "models.0.name"),
        ("models: [{name: a, alternatives: [{name: h20, image: i, gpu: 1}]}]", "gpu"),
        (
            "models: [{name: a, alternatives: &a [{name: t4, image: i}]}, {name: a, alternatives: *a}]",
            "two entries",
        ),
        ("models: [", "no YAML"),
        ("[]", "the file"),
    ],
)
def test_a_catalogue_that_cannot_be_used_says_where(text: str, said: str) -> None:
    with pytest.raises(CatalogueError) as error:
        Catalogue.from_yaml(text)
    assert said in str(error.value)


def test_entries_are_held_against_the_tables_of_the_operator() -> None:
    text = "models: [{name: a, alternatives: [{name: t9, image: i, needs: torch==99}]}]"
    found = problems(Catalogue.from_yaml(text), ModelTable(), environments())
    assert [("no model t9" in one, "no row of the table for torch 99" in one) for one in found] == [
        (True, False), (False, True),
    ]  # fmt: skip


def test_the_command_checks_and_expands(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    assert "3 models, 0 problems" in capsys.readouterr().out
    assert main(["expand", "--model", "bert-base", "--queue", "lab", "--members", "2"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert (made["metadata"]["name"], made["spec"]["minAvailable"]) == ("bert-base", 2)
    assert main(["expand", "--model", "none", "--queue", "lab"]) == 1
    assert main(["check", f"{tmp_path}/none.yaml"]) == 1


def test_the_request_of_an_entry_may_say_how_many_members() -> None:
    request = checked(JobRequest, wanted(model=None, image=None, catalogue="bert-base", members=5))
    assert shipped().expanded(request).members == 5
    with pytest.raises(RequestError):
        checked(JobRequest, wanted(model=None, image=None, catalogue="bert-base", cores=5))
