"""Pods and Jobs that may take any of several models, at the door."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from unit.volcano.test_alternatives import KINDS
from unit.webhook import job_reviews
from unit.webhook.pod_reviews import complete, group, of_job, refusal, waits
from unit.webhook.world import (
    JOB_CONTROLLER,
    NAMESPACE,
    OPERATOR,
    Json,
    container,
    context,
    create,
    job,
    patched,
    pod,
    queue,
    task,
    update,
)
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.reviews.queues import review_queue

LISTED = {names.USE_MODELS: "h20,v100-32g"}
BOTH = {"volcano.sh/vgpu-h20": "4", "volcano.sh/vgpu-v100-32g": "4"}


def of_any(**amounts: Any) -> Json:
    return container(vgpu=2, **{"vgpu_memory": 8192, "vgpu_cores": 30, **amounts})


def world(capability: Json | None = None, **settings: Any) -> Context:
    queues = {"a": queue("a", capability=capability or BOTH)}
    return context("alice use queues a", queues=queues, **settings)


def a_replica(*containers: Json, annotations: Json | None = None) -> Json:
    obj = pod(*(containers or (of_any(),)), annotations={**LISTED, **(annotations or {})})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "rs", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return obj


def request_of(done: Json) -> Json:
    found: Json = json.loads(done["metadata"]["annotations"][names.REQUEST])
    return found


def test_before_a_model_is_chosen_the_pod_waits_and_keeps_what_it_may_be() -> None:
    done = complete(a_replica(), world())
    assert waits(done)
    request = request_of(done)
    assert (request["containers"], [option["name"] for option in request["options"]]) == (
        {},
        ["h20", "v100-32g"],
    )
    assert [option["containers"]["c"]["memoryMiB"] for option in request["options"]] == [8192, 8192]
    resources = done["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"volcano.sh/vgpu": 2}, "requests": {"volcano.sh/vgpu": "2"}}
    assert patched(done, review_pod(create(done), world())) == done, "seen once more it is complete"


def chosen(choice: str, obj: Json | None = None, name: str = "podgroup-rs") -> Json:
    known = replace(world(), pod_groups={(NAMESPACE, name): group("rs", name=name, **{names.CHOICE: choice})})
    return complete(obj or a_replica(), known)


@pytest.mark.parametrize(("choice", "mib"), [("h20", 49152), ("v100-32g", 16384)])
def test_once_it_is_chosen_pods_are_made_with_it_and_percent_is_of_that_model(choice: str, mib: int) -> None:
    wanted = a_replica(container(vgpu=2, vgpu_memory_percentage=50))
    done = chosen(choice, wanted)
    request = request_of(done)
    assert (request["choice"], request["containers"]["c"]["model"]) == (choice, choice)
    assert request["containers"]["c"]["memoryMiB"] == mib
    assert done["spec"]["containers"][0]["resources"]["limits"] == {
        f"volcano.sh/vgpu-{choice}": 2,
        f"volcano.sh/vgpu-{choice}-memory": str(2 * mib),
    }
    assert patched(done, review_pod(create(done), world())) == done


def test_a_slice_of_a_kind_is_asked_for_once_its_model_is_chosen() -> None:
    entry = {"name": "npu", "kind": "npu", "slice": "vir05_1c_8g", "image": {"c": "cann"}}
    obj = pod(container(vgpu=1, vgpu_memory=99999), annotations={names.ALTERNATIVES: json.dumps([entry])})
    obj["metadata"]["ownerReferences"] = a_replica()["metadata"]["ownerReferences"]
    known = replace(world({"volcano.sh/vgpu-910b4": "4"}), table=KINDS)
    before = request_of(complete(obj, known))
    assert [(one["name"], one["containers"]["c"]["slice"]) for one in before["options"]] == [
        ("npu.910b4", "vir05_1c_8g")
    ]
    groups = {(NAMESPACE, "podgroup-rs"): group("rs", name="podgroup-rs", **{names.CHOICE: "npu.910b4"})}
    done = complete(obj, replace(known, pod_groups=groups))
    assert request_of(done)["containers"]["c"]["slice"] == "vir05_1c_8g"
    main = done["spec"]["containers"][0]
    assert (main["image"], main["resources"]["limits"]) == (
        "cann",
        {
            "volcano.sh/vgpu-910b4": 1,
            "volcano.sh/vgpu-910b4-memory": "8192",
            "volcano.sh/vgpu-910b4-cores": "25",
        },
    )
    assert patched(done, review_pod(create(done), replace(known, pod_groups=groups))) == done


def test_a_choice_that_is_not_in_the_list_says_nothing() -> None:
    assert "choice" not in request_of(chosen("a100-40g"))


def test_the_choice_of_a_job_is_read_on_its_own_pod_group_and_by_task() -> None:
    obj = of_job(pod(of_any(), annotations={**LISTED, names.TASK_SPEC: "w"}))
    known = {(NAMESPACE, "g"): group(**{names.CHOICE: "ps=h20,w=v100-32g"})}
    done = complete(obj, replace(world(), pod_groups=known), JOB_CONTROLLER)
    assert request_of(done)["choice"] == "v100-32g"


@pytest.mark.parametrize(
    ("annotations", "amounts", "text"),
    [
        ({names.USE_MODELS: ""}, {}, "is missing: volcano.sh/vgpu is of one of several models"),
        ({names.USE_MODELS: "h20,h21"}, {}, "model 'h21' is not known"),
        ({names.AVOID_MODELS: "h20,v100-32g"}, {}, "rules out all of them"),
        ({}, {"vgpu_memory": 40000}, "40000 is above 32768"),
        ({}, {"vgpu_memory": 40000}, "(model v100-32g of egpu.volcano.sh/use-models)"),
        ({}, {"vgpu": 9}, "9 is above 8"),
        ({}, {"vgpu": "1.5"}, "1.5"),
        ({}, {"vgpu_h20": 1}, "it names one model, or takes any"),
        ({names.MIX_MODELS: "yes"}, {}, "'yes', it must be one of true, false"),
    ],
)
def test_bad_lists_and_amounts_are_refused(annotations: Json, amounts: Json, text: str) -> None:
    one = container(**{"vgpu": 2, "vgpu_memory": 8192, **amounts})
    assert text in refusal(a_replica(one, annotations=annotations), world())


def test_a_pod_that_no_controller_makes_again_names_its_model() -> None:
    assert "made again once its model is chosen" in refusal(pod(of_any(), annotations=LISTED), world())


@pytest.mark.parametrize("cards", [1, 3])
def test_a_request_that_was_forged_is_refused(cards: int) -> None:
    done = complete(a_replica(), world())
    request = request_of(done)
    request["options"][0]["containers"]["c"]["cards"] = cards
    done["metadata"]["annotations"][names.REQUEST] = json.dumps(request)
    assert "does not agree with the limits" in refusal(done, world())


# --- Jobs --------------------------------------------------------------------------------------------


def a_job(*tasks: Json, **spec: Any) -> Json:
    return job(*(tasks or (task("w", 2, of_any(), annotations=LISTED),)), **spec)


def test_a_job_is_marked_and_its_group_will_ask_for_cards() -> None:
    done = job_reviews.complete(a_job(), world())
    template = done["spec"]["tasks"][0]["template"]
    assert template["metadata"]["labels"] == {names.MANAGED_LABEL: "true"}
    resources = template["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"volcano.sh/vgpu": "2"}
    assert resources["limits"]["volcano.sh/vgpu-memory"] == 8192, "the template says it still"
    assert patched(a_job(), review_job(update(a_job(), done), world())) == done, "applied once more"


def test_a_job_is_refused_where_no_model_fits_the_cap_and_warned_where_one_does_not() -> None:
    none = {"volcano.sh/vgpu-h20": "3", "volcano.sh/vgpu-v100-32g": "3"}
    assert "needs 4 volcano.sh/vgpu-h20 at once" in job_reviews.refusal(a_job(), world(none))
    one = {"volcano.sh/vgpu-h20": "3", "volcano.sh/vgpu-v100-32g": "4"}
    decision = review_job(create(a_job()), world(one))
    assert decision.allowed
    assert any("h20 of egpu.volcano.sh/use-models is not taken" in warning for warning in decision.warnings)
    assert not review_job(create(a_job()), world()).warnings


def test_tasks_take_the_same_model_unless_they_may_mix() -> None:
    def tasks(**more: str) -> tuple[Json, Json]:
        lists = [{names.USE_MODELS: model, **more} for model in ("h20", "v100-32g")]
        return task("ps", 1, of_any(), annotations=lists[0]), task("w", 1, of_any(), annotations=lists[1])

    assert "have no model in common" in job_reviews.refusal(a_job(*tasks()), world())
    assert job_reviews.complete(a_job(*tasks(**{names.MIX_MODELS: "true"})), world())


def test_another_list_of_models_is_checked_as_a_new_ask() -> None:
    stored = job_reviews.complete(a_job(), world())
    edited = copy.deepcopy(stored)
    edited["spec"]["tasks"][0]["template"]["metadata"]["annotations"][names.USE_MODELS] = "a100-40g"
    assert "does not name volcano.sh/vgpu-a100-40g" in job_reviews.refusal(edited, world(), stored)


def test_nobody_but_the_admission_layer_chooses() -> None:
    forged = a_job(annotations={names.CHOICE: "h20"})
    assert "written by the admission layer alone" in job_reviews.refusal(forged, world())


def test_a_cap_on_any_model_is_warned_of() -> None:
    edited = queue("a", capability={**BOTH, names.ANY_MODEL: "4"})
    decision = review_queue(update(edited, queue("a", capability=BOTH), OPERATOR), world())
    assert decision.allowed
    assert any("counts nothing" in warning for warning in decision.warnings)


# --- alternatives ------------------------------------------------------------------------------------

WAYS = json.dumps(
    [
        {"name": "large", "model": "h20", "memory": "50%", "image": {"c": "reg/a"}},
        {
            "name": "small",
            "model": "v100-32g",
            "count": 4,
            "memory": 8192,
            "image": {"c": "reg/b"},
            "env": {"c": {"MODE": "small"}},
        },
    ]
)


def job_with(alternatives: str = WAYS, **annotations: str) -> Json:
    said = {names.ALTERNATIVES: alternatives, **annotations}
    return job(task("w", 1, container(vgpu=1)), task("ps", 1, {"name": "c", "image": "i"}), annotations=said)


def test_what_a_job_says_of_alternatives_is_on_the_templates_that_ask_for_cards() -> None:
    done = job_reviews.complete(job_with(), world())
    worker, server = (each["template"]["metadata"] for each in done["spec"]["tasks"])
    assert worker["annotations"] == {names.ALTERNATIVES: WAYS}
    assert names.ALTERNATIVES not in server.get("annotations", {})
    assert patched(job_with(), review_job(update(job_with(), done), world())) == done, "applied once more"


def test_a_new_text_replaces_that_of_the_templates() -> None:
    stored = job_reviews.complete(job_with(), world())
    other = json.dumps([{"name": "h20", "memory": 1000}])
    edited = copy.deepcopy(stored)
    edited["metadata"]["annotations"][names.ALTERNATIVES] = other
    done = patched(edited, review_job(update(edited, stored), world()))
    assert done["spec"]["tasks"][0]["template"]["metadata"]["annotations"] == {names.ALTERNATIVES: other}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no JSON"),
        (json.dumps([{"name": "h20", "image": {"d": "x"}}]), "there is no container 'd'"),
        (json.dumps([{"name": "a100-40g"}]), "does not name volcano.sh/vgpu-a100-40g"),
    ],
)
def test_a_job_with_an_alternative_that_cannot_be_is_refused(text: str, said: str) -> None:
    assert said in job_reviews.refusal(job_with(text), world())


def test_the_order_is_one_of_two_words() -> None:
    assert "must be one of ordered, best" in job_reviews.refusal(
        job_with(**{names.ALTERNATIVES_ORDER: "fast"}), world()
    )
    done = job_reviews.complete(job_with(**{names.ALTERNATIVES_ORDER: "best"}), world())
    template = done["spec"]["tasks"][0]["template"]
    made = of_job(pod(*template["spec"]["containers"], annotations=template["metadata"]["annotations"]))
    known = replace(world(), pod_groups={(NAMESPACE, "g"): group()})
    assert request_of(complete(made, known, JOB_CONTROLLER))["order"] == "best"


def test_a_pod_gets_image_environment_and_cards_of_the_chosen_alternative() -> None:
    def made(choice: str) -> Json:
        obj = of_job(pod(container(vgpu=1), annotations={names.ALTERNATIVES: WAYS}))
        known = {(NAMESPACE, "g"): group(**({names.CHOICE: choice} if choice else {}))}
        done = complete(obj, replace(world(), pod_groups=known), JOB_CONTROLLER)
        assert (
            patched(done, review_pod(create(done, JOB_CONTROLLER), replace(world(), pod_groups=known)))
            == done
        )
        return done

    (waiting,), (one,), (two,) = (made(name)["spec"]["containers"] for name in ("", "large", "small"))
    assert (waiting["image"], waiting["resources"]["limits"]) == ("i", {"volcano.sh/vgpu": 1})
    assert (one["image"], "env" in one) == ("reg/a", False)
    assert one["resources"]["limits"]["volcano.sh/vgpu-h20-memory"] == "49152"
    assert (two["image"], two["env"]) == ("reg/b", [{"name": "MODE", "value": "small"}])
    assert two["resources"]["requests"] == {
        "volcano.sh/vgpu-v100-32g": "4",
        "volcano.sh/vgpu-v100-32g-memory": "32768",
    }
