"""Asks: what is accepted is within its limits and sums up; completing twice is completing once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.webhook.world import TABLE, Json, context, create, job, patched, pod, task, update
from vc_egpu.volcano.codec.request import AskError, read_pod
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod

NAMES = [
    "vgpu-h20", "vgpu-v100-32g", "vgpu-nothing", "gpu-h20", "vgpu-memory", "vgpu-memory-percentage",
    "vgpu-cores", "vgpu-number", "vgpu-h20-memory", "vgpu-h20-cores",
]  # fmt: skip
amount: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 110),
    st.sampled_from(["4k", "4Gi", "0.5", "1e30", "x", 98304, 98305, 2**70, 1.5, None, True, [], {}]),
)
limits = st.dictionaries(st.sampled_from(["volcano.sh/" + name for name in NAMES]), amount, max_size=5)


@st.composite
def containers(draw: st.DrawFn) -> list[Json]:
    found = []
    for index in range(draw(st.integers(1, 3))):
        asked = draw(limits)
        resources: Json = {"limits": asked}
        if draw(st.booleans()):
            resources["requests"] = dict(asked)
        found.append({"name": f"c{index}", "image": "i", "resources": resources})
    return found


@st.composite
def sane(draw: st.DrawFn) -> list[Json]:
    """Containers that are accepted."""
    found = []
    for index in range(draw(st.integers(1, 2))):
        asked: dict[str, Any] = {"volcano.sh/vgpu-h20": draw(st.integers(1, 2))}
        if draw(st.booleans()):
            asked["volcano.sh/vgpu-memory"] = draw(st.integers(1, 40_000))
            if draw(st.booleans()):
                asked["volcano.sh/vgpu-cores"] = draw(st.integers(1, 100))
        found.append({"name": f"c{index}", "image": "i", "resources": {"limits": asked}})
    return [*found, {"name": "plain", "image": "i"}]


@given(containers())
def test_an_accepted_ask_is_within_its_limits_and_sums_up(found: list[Json]) -> None:
    try:
        ask = read_pod({"containers": found}, TABLE)
    except AskError as error:
        assert error.path.startswith("spec")
        assert error.problem
        return
    for name, one in ask.containers.items():
        model = TABLE.get(one.model)
        assert model is not None
        assert 1 <= one.cards <= model.cards_per_node
        assert 1 <= one.memory_mib <= model.memory_mib
        assert 0 <= one.cores_percent <= 100
        if not one.native:
            assert ask.totals[name][f"volcano.sh/vgpu-{one.model}-memory"] == one.cards * one.memory_mib


@settings(max_examples=60)
@given(sane())
def test_completing_a_pod_twice_is_completing_it_once(found: list[Json]) -> None:
    ctx = context(unnamed_model_unlimited=True, queues={"a": {"metadata": {"name": "a"}, "spec": {}}})
    once = patched(obj := pod(*found), review_pod(create(obj), ctx))
    assert review_pod(create(once), ctx).patch == ()
    # The totals that stand in the limits are read back as the very same ask.
    request = Request.decode(once["metadata"]["annotations"]["egpu.volcano.sh/request"])
    assert read_pod(once["spec"], TABLE, known=request).containers == request.containers


@settings(max_examples=60)
@given(sane(), st.integers(1, 3))
def test_applying_a_job_again_is_applying_it_once(found: list[Json], replicas: int) -> None:
    ctx = context(unnamed_model_unlimited=True, queues={"a": {"metadata": {"name": "a"}, "spec": {}}})
    manifest = job(task("w", replicas, *found), task("cpu", 1, {"name": "x", "image": "i"}))
    stored = patched(manifest, review_job(create(manifest), ctx))
    assert patched(manifest, review_job(update(manifest, stored), ctx)) == stored
    assert review_job(update(stored, stored), ctx).patch == ()
    assert review_job(create(stored), ctx).patch == ()
