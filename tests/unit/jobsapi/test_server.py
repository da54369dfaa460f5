"""Jobs over HTTP: what is refused and how, whose token goes out, and what comes back."""

import base64
import json
from typing import Any

import pytest
from unit.jobsapi.stand_in import Caller, Cluster, served, wanted
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.request import LIMITS, Alternative, JobRequest
from vc_egpu.volcano.words import names

ALTERNATIVE = {"name": "h20", "image": "reg/a"}
BAD: dict[str, tuple[Any, str, str]] = {
    "no name": (wanted(name=None), "name", "1 to 50"),
    "an empty name": (wanted(name=""), "name", "1 to 50"),
    "a name in capitals": (wanted(name="Tune"), "name", "1 to 50"),
    "a name of 51": (wanted(name="x" * 51), "name", "1 to 50"),
    "a name that is a path": (wanted(name="../tune"), "name", "1 to 50"),
    "a namespace of 64": (wanted(namespace="x" * 64), "namespace", "1 to 63"),
    "a namespace that is a path": (wanted(namespace="lab/jobs/x"), "namespace", "1 to 63"),
    "no queue": (wanted(queue=None), "queue", "exactly one"),
    "queue and quota": (wanted(quota="lab"), "queue", "exactly one"),
    "a queue with a blank": (wanted(queue="my queue"), "queue", "1 to 253"),
    "no model": (wanted(model=None), "model", "exactly one of"),
    "model and models": (wanted(models=["t4"]), "models", "exactly one of"),
    "model and kind": (wanted(kind="h20"), "kind", "exactly one of"),
    "a model in capitals": (wanted(model="H20"), "model", "1 to 32"),
    "nine models": (wanted(model=None, models=["h20"] * 9), "models", "1 to 8"),
    "no image": (wanted(image=None), "image", "1 to 1024"),
    "an image with a line end": (wanted(image="reg/a\nb"), "image", "1 to 1024"),
    "no member": (wanted(members=0), "members", "1 to 2048"),
    "2,049 members": (wanted(members=2049), "members", "1 to 2048"),
    "members as text": (wanted(members="4"), "members", "1 to 2048"),
    "half a card": (wanted(count=0.5), "count", "1 to 64"),
    "65 cards": (wanted(count=65), "count", "1 to 64"),
    "true cards": (wanted(count=True), "count", "1 to 64"),
    "memory of none": (wanted(memory=0), "memory", "16777216"),
    "memory of 101 percent": (wanted(memory="101%"), "memory", "100%"),
    "memory beyond 64 bits": (wanted(memory=10**30), "memory", "16777216"),
    "101 cores": (wanted(cores=101), "cores", "1 to 100"),
    "65 variables": (wanted(env={f"V{n}": "" for n in range(65)}), "env", "64"),
    "a variable with =": (wanted(env={"A=B": ""}), "env.A=B", "64"),
    "a number as a variable": (wanted(env={"A": 1}), "env.A", "64"),
    "needs of 513": (wanted(needs="cuda>=12," * 64), "needs", "512"),
    "needs of 17 parts": (wanted(needs=",".join(["cuda>=12"] * 17)), "needs", "16"),
    "needs without a version": (wanted(needs="cuda>="), "needs", "cuda>=12.4"),
    "a command of one text": (wanted(command="sh -c"), "command", "64 texts"),
    "65 arguments": (wanted(args=["x"] * 65), "args", "64 texts"),
    "an unknown priority": (wanted(priority="highest"), "priority", "high or low"),
    "an order without alternatives": (wanted(order="best"), "order", "only with"),
    "no alternative": (wanted(model=None, alternatives=[]), "alternatives", "1 to 8"),
    "nine alternatives": (
        wanted(model=None, alternatives=[{"name": f"m{n}", "image": "i"} for n in range(9)]),
        "alternatives",
        "1 to 8",
    ),
    "two of one name": (
        wanted(model=None, alternatives=[ALTERNATIVE] * 2),
        "alternatives",
        "different names",
    ),
    "a word too many inside": (
        wanted(model=None, alternatives=[{**ALTERNATIVE, "volumes": []}]),
        "alternatives.0.volumes",
        "one of image, count",
    ),
    "memory inside": (
        wanted(model=None, alternatives=[{**ALTERNATIVE, "memory": -1}]),
        "alternatives.0.memory",
        "16777216",
    ),
    "no image inside": (
        wanted(model=None, image=None, alternatives=[{"name": "h20"}]),
        "alternatives.0.image",
        "1 to 1024",
    ),
    "alternatives of 20 KiB": (
        wanted(model=None, alternatives=[{**ALTERNATIVE, "args": ["x" * 4000] * 5}]),
        "alternatives",
        "16384 bytes",
    ),
    "an entry that is not there": (
        wanted(model=None, image=None, catalogue="gpt-9"),
        "catalogue",
        "bert-base",
    ),
    "an image for an entry": (wanted(model=None, catalogue="bert-base"), "image", "not with"),
    "a service account": (wanted(service_account="root"), "service_account", "one of image"),
    "a privileged wish": (wanted(securityContext={"privileged": True}), "securityContext", "one of image"),
    "user 0": (wanted(run_as_user=0), "run_as_user", "1 to"),
    "a list": ([wanted()], "body", "JSON object"),
    "no JSON": (b"{", "body", "JSON object"),
    "text that is no UTF-8": (b'{"name": "\xff"}', "body", "JSON object"),
    "deep nesting": (b'{"env": ' + b"[" * 100_000, "body", "JSON object"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_told_field_and_limit_and_is_not_sent_on(
    case: str, api: Cluster, ann: Caller
) -> None:
    body, field, limit = BAD[case]
    answer = ann.post(body)
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["field"]) == (400, field), error
    assert limit in error["limit"], error
    assert error["message"]
    assert api.requests == []


def test_what_is_wrong_around_the_body_is_told_too(api: Cluster, ann: Caller) -> None:
    def said(answer: Any) -> tuple[int, str, str]:
        error = json.loads(answer.data)["error"]
        return answer.status, error["field"], error["limit"]

    assert said(ann.post(wanted(env={"A": "x" * 300_000}))) == (413, "body", "at most 262144 bytes")
    assert said(ann.post(wanted(), Content_Type="text/plain")) == (415, "Content-Type", "application/json")
    assert said(ann.send("PUT", "/v1/jobs", {}))[:2] == (405, "method")
    assert said(ann.send("GET", "/v2/jobs"))[:2] == (404, "path")
    assert said(ann.send("GET", f"/v1/jobs/lab/{'x' * 254}"))[:2] == (400, "name")
    assert said(ann.send("GET", "/v1/jobs/lab/%2e%2e"))[0] in {400, 404}
    assert said(ann.send("GET", "/v1/jobs/lab/a%2Fb"))[:2] == (400, "name")
    assert said(ann.send("POST", "/v1/jobs?dry_run=perhaps", wanted()))[1:] == ("dry_run", "true or false")
    assert api.requests == []


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b"])
def test_without_a_token_nothing_goes_out(header: str, api: Cluster, ann: Caller) -> None:
    answer = ann.post(wanted(), Authorization=header)
    assert answer.status == 401
    assert json.loads(answer.data)["error"]["field"] == "Authorization"
    assert api.requests == []


def test_a_job_is_made_with_the_caller_s_token_and_nothing_of_ours(api: Cluster, ann: Caller) -> None:
    answer = ann.post(wanted(members=2), Impersonate_User="admin", X_Remote_User="admin", Cookie="a=b")
    assert answer.status == 201, answer.data
    assert answer.headers["Location"] == "/v1/jobs/lab/tune"
    ((method, path, headers),) = api.requests
    assert (method, path) == ("POST", "/apis/batch.volcano.sh/v1alpha1/namespaces/lab/jobs")
    assert headers["Authorization"] == "Bearer ann-token"
    assert not {name for name in headers if name.lower().startswith(("impersonate", "x-remote", "cookie"))}
    spec = api.jobs["lab", "tune"]["spec"]
    assert (spec["queue"], spec["minAvailable"], spec["tasks"][0]["replicas"]) == ("lab", 2, 2)


def test_a_tenant_cannot_submit_into_the_namespace_of_another(api: Cluster, ann: Caller) -> None:
    bob = Caller(ann.url, "bob-token")
    for caller, namespace in ((ann, "web"), (bob, "lab")):
        answer = caller.post(wanted(namespace=namespace))
        assert (answer.status, json.loads(answer.data)["error"]["field"]) == (403, "namespace")
    assert api.jobs == {}
    assert ann.post(wanted()).status == 201
    assert bob.send("GET", "/v1/jobs/lab/tune").status == 403
    assert bob.send("DELETE", "/v1/jobs/lab/tune").status == 403
    assert set(api.jobs) == {("lab", "tune")}


def test_tokens_of_two_callers_do_not_mix_on_one_connection(api: Cluster, ann: Caller) -> None:
    bob = Caller(ann.url, "bob-token")
    for number in range(20):
        assert ann.post(wanted(name=f"a{number}")).status == 201
        assert bob.post(wanted(name=f"b{number}", namespace="web")).status == 201
    for _, path, headers in api.requests:
        assert headers["Authorization"] == ("Bearer bob-token" if "/web/" in path else "Bearer ann-token")


def test_a_token_that_the_cluster_does_not_take_is_asked_about_once(api: Cluster, ann: Caller) -> None:
    assert Caller(ann.url, "stolen").post(wanted()).status == 401
    assert len(api.requests) == 1


def test_the_namespace_is_the_service_account_s_where_none_is_named(api: Cluster, ann: Caller) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"kubernetes.io": {"namespace": "lab"}}).encode())
    token = f"h.{claims.decode().rstrip('=')}.s"
    api.rights[token] = {"lab"}
    assert Caller(ann.url, token).post(wanted(namespace=None)).status == 201
    assert ("lab", "tune") in api.jobs
    answer = ann.post(wanted(namespace=None))
    assert (answer.status, json.loads(answer.data)["error"]["field"]) == (400, "namespace")


@pytest.mark.parametrize(
    ("refusal", "status", "field"),
    [
        (
            (400, "BadRequest", 'webhook "jobs" denied the request: spec.queue: there is no queue x'),
            422,
            "queue",
        ),
        ((403, "Forbidden", 'may not "use" queues.scheduling.volcano.sh "x"'), 403, "queue"),
        ((400, "BadRequest", f"annotations[{names.NEEDS}]: 'cuba' is unknown"), 422, "needs"),
        ((404, "NotFound", 'namespaces "lab" not found'), 404, "namespace"),
        ((429, "TooManyRequests", "later"), 429, ""),
        ((500, "InternalError", "etcd"), 502, ""),
        ((504, "Timeout", "late"), 504, ""),
    ],
)
def test_what_the_cluster_refuses_is_told_as_it_said_it(
    refusal: tuple[int, str, str], status: int, field: str, api: Cluster, ann: Caller
) -> None:
    api.refusal = refusal
    answer = ann.post(wanted())
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["field"]) == (status, field)
    assert refusal[2] in error["message"]
    assert ("read the Job before you try again" in error["message"]) == (status in {502, 504})
    assert answer.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert len(api.requests) == 1, "a write is not repeated"


def test_the_second_of_one_name_is_refused(ann: Caller) -> None:
    assert ann.post(wanted()).status == 201
    answer = ann.post(wanted())
    assert (answer.status, json.loads(answer.data)["error"]["field"]) == (409, "name")


def test_a_dry_run_makes_nothing(api: Cluster, ann: Caller) -> None:
    assert ann.send("POST", "/v1/jobs?dry_run=true", wanted()).status == 201
    assert api.jobs == {}


def test_a_job_is_read_with_why_it_waits_and_deleted(api: Cluster, ann: Caller) -> None:
    assert ann.post(wanted(members=3)).status == 201
    api.jobs["lab", "tune"]["status"] = {"state": {"phase": "Pending"}, "pending": 3}
    why = {
        "type": names.CONDITION_ADMITTED,
        "status": "False",
        "reason": "WaitingForQuota",
        "message": "3 of 4",
    }
    api.groups["lab", "tune-uid-tune"] = {
        "metadata": {"name": "tune-uid-tune", "annotations": {names.CHOICE: "h20"}},
        "status": {"conditions": [why]},
    }
    found = json.loads(ann.send("GET", "/v1/jobs/lab/tune").data)
    assert found["state"] == "waiting"
    assert (found["reason"], found["why"], found["alternative"]) == ("WaitingForQuota", "3 of 4", "h20")
    assert (found["members"], found["pods"]) == (3, {"pending": 3})
    assert ann.send("DELETE", "/v1/jobs/lab/tune").status == 204
    assert ann.send("GET", "/v1/jobs/lab/tune").status == 404


def test_too_many_at_once_are_told_to_come_again(api: Cluster) -> None:
    with served(api.url, most_under_way=0) as url:
        answer = Caller(url).post(wanted())
    assert answer.status == 503
    assert api.requests == []


def test_the_catalogue_needs_a_good_token(ann: Caller) -> None:
    assert Caller(ann.url, "stolen").send("GET", "/v1/models").status == 401
    names_of = [one["name"] for one in json.loads(ann.send("GET", "/v1/models").data)["models"]]
    assert names_of == ["qwen2.5-7b", "llama-3.1-8b", "bert-base"]


def test_the_client_is_typed_and_says_what_was_refused(api: Cluster, ann: Caller) -> None:
    with JobsClient(ann.url, "ann-token") as jobs:
        request = JobRequest(name="tune", namespace="lab", queue="lab", catalogue="bert-base", members=2)
        assert jobs.submit(request, dry_run=True).members == 2
        made = jobs.submit(request)
        assert (made.name, made.state) == ("tune", "waiting")
        assert [one.name for one in jobs.models().models][-1] == "bert-base"
        with pytest.raises(JobsApiError) as refused:
            jobs.submit(request)
        assert (refused.value.status, refused.value.refusal.field) == (409, "name")
        jobs.delete("lab", "tune")
        with pytest.raises(JobsApiError) as gone:
            jobs.read("lab", "tune")
        assert gone.value.status == 404
        assert not gone.value.may_have_happened
    with pytest.raises(JobsApiError) as away, JobsClient("http://127.0.0.1:1", "t") as jobs:
        jobs.read("lab", "tune")
    assert away.value.may_have_happened


def test_each_field_has_a_limit_that_refusals_can_name() -> None:
    assert {*JobRequest.model_fields, *Alternative.model_fields} == set(LIMITS)
