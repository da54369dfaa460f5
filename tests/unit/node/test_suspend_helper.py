"""What is said to the checkpoint helper and by it, and the pod in which it runs."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from vc_egpu.kube.wire.errors import KubeError, NotFound, Refused, Temporary
from vc_egpu.volcano.words import names
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.suspension.helper import (
    Answer,
    Drain,
    HelperError,
    NotBegunError,
    NotNowError,
    PodHelper,
    parse,
    words,
)

# --- what is said to the helper, and by it -----------------------------------------------------------


def test_words_and_answers() -> None:
    assert words("suspend", [(7, 9), (8, 10)], 2_500) == "suspend --lock-ms 2500 7:9 8:10"
    drain = Drain("SIGUSR2", 20_000)
    assert words("resume", [(7, 9)], 10, drain) == "resume --lock-ms 10 --signal USR2 --drain-ms 20000 7:9"
    with pytest.raises(NotBegunError, match="SIGKILL"):
        words("suspend", [(7, 9)], 10, Drain("SIGKILL", 1))
    with pytest.raises(NotBegunError, match="129 processes"):
        words("suspend", [(n, 1) for n in range(129)], 1)
    text = '{"version":1,"verb":"suspend","ok":true,"error":"","ms":1,"states":{"7":"checkpointed"}}'
    assert parse(text) == Answer(True, "", {7: "checkpointed"})
    for wrong in ("", "{}", text.replace("1,", "2,", 1), text.replace("checkpointed", "odd"), "[1]", "null"):
        with pytest.raises(HelperError, match="cannot be read"):
            parse(wrong)


# --- the helper's pod --------------------------------------------------------------------------------

SAID = '{"version":1,"verb":"suspend","ok":true,"error":"","ms":1,"states":{"7":"checkpointed"}}'


class Api:
    """The API server and the kubelet, as far as one helper's pod goes; also the watch of this node's pods."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self.status = status
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.refuse: KubeError | None = None
        self.template: dict[str, Any] = {
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"activeDeadlineSeconds": 0}}
        }
        self.reflector = self
        self.results = Path("/nowhere")
        self.answer = ""
        self.clock_s = itertools.count(0, 20)
        """Each look at it is 20 seconds later."""

    def get(self, *arguments: Any) -> Any:
        if isinstance(arguments[0], str):
            return self.pods.get(arguments[0])
        return self.template

    def create(self, resource: Any, body: dict[str, Any]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.made.append(body)
        self.pods[body["metadata"]["name"]] = {"status": self.status or {"phase": "Running"}}
        if self.answer:
            (self.results / body["metadata"]["name"]).write_text(self.answer)

    def delete(self, resource: Any, name: str, namespace: str) -> None:
        if self.pods.pop(name, None) is None:
            raise NotFound("gone")

    def views(self) -> list[PodView]:
        return [PodView("u", "system", name, "n", "Running", None) for name in self.pods]


def pod_helper(api: Api) -> PodHelper:
    return PodHelper(
        api,  # type: ignore[arg-type]
        node="n",
        namespace="system",
        pods=api,  # type: ignore[arg-type]
        results=api.results,
        clock=lambda: float(next(api.clock_s)),
    )


def ended(**terminated: Any) -> dict[str, Any]:
    return {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": terminated}}]}


def test_the_pod_is_of_the_template_on_this_node_and_goes_when_it_has_answered() -> None:
    api = Api(ended(message=SAID, exitCode=0))
    assert pod_helper(api).run("suspend", [(7, 9)], 10).done
    (made,) = api.made
    assert made["metadata"]["annotations"] == {names.CHECKPOINT: "suspend --lock-ms 10 7:9"}
    assert (made["spec"]["nodeName"], made["metadata"]["labels"]) == ("n", {"app": "x"})
    assert api.pods == {}


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (ended(reason="Error", exitCode=139), HelperError, "Error, exit code 139"),
        (ended(message="{"), HelperError, "cannot be read"),
        ({"phase": "Failed"}, NotBegunError, "before it could begin"),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"waiting": {}}}]},
            NotBegunError,
            "could begin",
        ),
        ({"phase": "Failed", "containerStatuses": [{"state": {"running": {}}}]}, HelperError, "while it ran"),
        ({"phase": "Running"}, HelperError, "has not ended"),
    ],
)
def test_a_pod_without_an_answer(status: dict[str, Any], error: type[Exception], text: str) -> None:
    api = Api(status)
    with pytest.raises(error, match=text):
        pod_helper(api).run("suspend", [(7, 9)], 10)
    assert api.pods == {}


@pytest.mark.parametrize(("told_to_end", "text"), [(True, "was deleted"), (False, "has not ended")])
def test_a_pod_that_somebody_deletes_is_not_waited_for(told_to_end: bool, text: str) -> None:
    """The launches of the pod that it works on wait as long. Deleted with force it may still run."""
    api = Api(None)

    def looked_at(name: str, _namespace: str) -> Any:
        looks.append(name)
        if len(looks) > 3:
            api.pods.pop(name, None)
        document = api.pods.get(name)
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if told_to_end and len(looks) > 2 else {}
        return document and {**document, "metadata": stamp}

    looks: list[str] = []
    helper = pod_helper(api)
    api.template["template"]["spec"]["activeDeadlineSeconds"] = 300
    get = api.get
    api.get = lambda *arguments: (looked_at if isinstance(arguments[0], str) else get)(*arguments)  # type: ignore[method-assign]
    with pytest.raises(HelperError, match=text):
        helper.run("suspend", [(7, 9)], 10)
    assert (len(looks) < 10) is told_to_end


@pytest.mark.parametrize("begins", [False, True])
def test_a_pod_that_does_not_begin_is_not_waited_for_until_its_end(
    monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    """Its image cannot be pulled, say: the launches of the pod that it is for wait as long."""
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    api = Api({"phase": "Pending", "containerStatuses": [{"name": "c", "state": waiting}]})
    api.template["template"]["spec"]["activeDeadlineSeconds"] = 300

    def delete(_resource: Any, name: str, _namespace: str) -> None:
        pod = api.pods.get(name)
        if pod is None:
            raise NotFound("gone")
        stamp = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        late = {"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}
        seen.extend([{**pod, **stamp}, {**pod, **stamp, **(late if begins else {})}])
        del api.pods[name]

    def get(resource: Any, *arguments: Any) -> Any:
        if not isinstance(resource, str):
            return api.template
        return seen.pop(0) if seen else api.pods.get(resource)

    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(api, "delete", delete)
    monkeypatch.setattr(api, "get", get)
    helper = pod_helper(api)
    error, text = (HelperError, "while it ran") if begins else (NotBegunError, "ImagePullBackOff")
    with pytest.raises(error, match=text):
        helper.run("suspend", [(7, 9)], 10)
    assert next(api.clock_s) < 200


def test_a_pod_that_is_refused_or_whose_making_is_not_known() -> None:
    api = Api(ended(message=SAID))
    helper = pod_helper(api)
    api.refuse = Refused("policy")
    with pytest.raises(NotBegunError, match="policy"):
        helper.run("suspend", [(7, 9)], 10)
    api.refuse = Temporary("time-out")
    with pytest.raises(NotNowError, match="time-out"):
        helper.run("suspend", [(7, 9)], 10)
    (lost,) = helper.lost
    api.refuse = None
    api.pods[lost] = {"status": {"phase": "Running"}}  # it was made all the same
    assert helper.run("suspend", [(7, 9)], 10).done
    assert (api.pods, helper.lost) == ({}, frozenset())


def test_a_helper_that_does_not_end_halts_no_other_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in the driver may for days: with pods that it never touched nothing was begun."""
    api = Api({"phase": "Running"})
    helper = pod_helper(api)
    monkeypatch.setattr(api, "delete", lambda *_arguments: None)  # it is told to, and stays
    with pytest.raises(HelperError, match="has not ended"):
        helper.run("suspend", [(7, 9)], 10)
    with pytest.raises(NotBegunError, match="an earlier helper has not ended"):
        helper.run("suspend", [(8, 10)], 10)
    assert len(api.made) == 1


def test_an_answer_is_taken_before_the_kubelet_tells_of_the_end(tmp_path: Path) -> None:
    api = Api({"phase": "Running"})
    api.results, api.answer = tmp_path, SAID
    with pytest.raises(HelperError, match="has not ended"):  # half a line is no answer
        pod_helper(api).run("suspend", [(7, 9)], 10)
    api.answer = f"{SAID}\n"
    assert pod_helper(api).run("suspend", [(7, 9)], 10).done
    assert (api.pods, list(tmp_path.iterdir())) == ({}, [])
    (tmp_path / "vc-egpu-checkpoint-old").write_text(SAID)
    pod_helper(api).sweep()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_what_an_earlier_agent_left_is_ended_first(phase: str) -> None:
    api = Api(None)
    api.pods = {"vc-egpu-checkpoint-1": {"status": {"phase": phase}}, "vc-egpu-node-agent-1": {}}
    pod_helper(api).sweep()
    assert set(api.pods) == {"vc-egpu-node-agent-1"}


def test_an_agent_that_ends_leaves_the_pod_to_the_next() -> None:
    api = Api({"phase": "Running"})
    helper = pod_helper(api)
    helper.stop()
    with pytest.raises(NotNowError, match="the agent ends"):
        helper.run("suspend", [(7, 9)], 10)
    assert len(api.pods) == 1
