"""The committed manifests are the generated ones, and name nobody but our own."""

import re
from pathlib import Path
from typing import Any

import yaml
from vc_egpu.volcano.words import names
from vc_egpu.webhook.policies.checks import Identities, admission_policies
from vc_egpu.webhook.policies.manifests import files, main, webhook_configurations
from vc_egpu.webhook.serving.reviewer import PATHS
from vc_egpu_node.vendors.registry import SHARED_LABELS

FOLDER = Path(__file__).resolve().parents[3] / "manifests" / "base" / "webhook"


def test_the_committed_files_are_generated() -> None:
    for name, text in files().items():
        assert (FOLDER / name).read_text() == text, (
            f"run `python -m vc_egpu.webhook.policies.manifests {FOLDER}`"
        )


def test_every_webhook_fails_closed_and_has_a_path_that_is_served() -> None:
    for configuration in webhook_configurations():
        for webhook in configuration["webhooks"]:
            asks_for_nothing = webhook["name"] == names.MEMBERS_WEBHOOK
            assert webhook["failurePolicy"] == ("Ignore" if asks_for_nothing else "Fail")
            assert webhook["clientConfig"]["service"]["path"] in PATHS


def test_jobs_and_pods_of_others_stay_off_the_path() -> None:
    for configuration in webhook_configurations():
        for webhook in configuration["webhooks"]:
            if webhook["rules"][0]["resources"][0] in {"pods", "jobs"}:
                assert webhook["matchConditions"]


def test_other_identities_stand_in_one_place(tmp_path: Path) -> None:
    main([str(tmp_path), "--volcano", "system:serviceaccount:elsewhere:vc"])
    text = (tmp_path / "admission-policies.yaml").read_text()
    expected = Identities(volcano=(*Identities().volcano, "system:serviceaccount:elsewhere:vc"))
    assert list(yaml.safe_load_all(text)) == admission_policies(expected)


def test_nobody_but_the_admission_layer_lifts_a_gate_or_writes_cards() -> None:
    ours = [
        entry["expression"]
        for policy in admission_policies()
        for entry in policy["spec"].get("variables", ())
        if entry["name"] == "ours"
    ]
    assert ours
    assert all("vc-egpu-admission" in text and "vc-egpu-jobs" not in text for text in ours)


def policy(name: str) -> Any:
    return next(entry for entry in admission_policies() if entry["metadata"]["name"] == name)["spec"]


def test_bindings_bring_our_annotations_from_us_and_from_schedulers_that_repeat_them() -> None:
    spec = policy("vc-egpu-bindings")
    assert spec["matchConstraints"]["resourceRules"][0]["resources"] == ["bindings", "pods/binding"]
    annotations, labels, others = (check["expression"] for check in spec["validations"])
    cards = f"object.metadata.?annotations.orValue({{}}).all(k, k == '{names.CARDS}')"
    assert annotations.startswith(f"variables.scheduler || variables.ours && {cards} || !")
    for key in (names.GROUP_NAME, names.QUEUE_NAME, names.TASK_SPEC, names.TASK_INDEX):
        assert f"'{key}'" in annotations, "a pod stays in its gang, and in its place there"
    assert f"'{names.JOB_QUEUE_NAME}'" in labels
    assert "scheduler" not in labels
    assert others.startswith("variables.scheduler || variables.ours || variables.binder || !")
    assert f"annotations[?'{names.QUEUE_NAME}']" in others, "in a tenant's namespace"


def test_who_brings_our_gate_is_looked_at() -> None:
    """The admission layer answers for it, and would take it for a member of whatever PodGroup it names."""
    found = [webhook for configuration in webhook_configurations() for webhook in configuration["webhooks"]]
    (pods,) = (webhook for webhook in found if webhook["name"].startswith("pods.egpu"))
    gate = f".exists(g, g.name == '{names.GATE}')"
    assert gate in pods["matchConditions"][0]["expression"]
    assert gate in policy("vc-egpu-pods-create")["matchConditions"][0]["expression"].partition(" && ")[0]
    name = f"spec.?schedulerName.orValue('') == '{names.SCHEDULER_DIRECT}'"
    assert name in pods["matchConditions"][0]["expression"]


def test_a_low_pod_is_not_told_to_go_in_years() -> None:
    """On its way out it is nobody's victim, and a later delete does not shorten its time."""
    spec = policy("vc-egpu-pods-grace")
    assert spec["matchConstraints"]["resourceRules"][0]["operations"] == ["DELETE"]
    (condition,), (check,) = spec["matchConditions"], spec["validations"]
    assert f"annotations[?'{names.PRIORITY}'].orValue('') == 'low'" in condition["expression"]
    given, _, own = check["expression"].partition(" <= ")
    assert given == "request.?options.?gracePeriodSeconds.orValue(0)"
    assert own == "oldObject.spec.?terminationGracePeriodSeconds.orValue(30)"


def test_an_agent_draws_nobodys_pods_to_its_node() -> None:
    """Its account lies on the node: without this it could give it labels that the kubelet's may not."""
    spec = policy("vc-egpu-nodes")
    assert spec["matchConstraints"]["resourceRules"][0]["resources"] == ["nodes", "nodes/status"]
    labels = next(check["expression"] for check in spec["validations"] if "?labels" in check["expression"])
    written = {names.MODEL_LABEL_PREFIX, *names.AGENT_LABELS, *SHARED_LABELS}
    assert set(re.findall(r"'([^']*/[^']*)'", labels)) == written, "what it writes, and nothing else"
    rest = " ".join(check["expression"] for check in spec["validations"])
    for field in ("ownerReferences", "finalizers"):
        assert f"object.metadata.?{field}.orValue([]) == oldObject.metadata.?{field}" in rest


def test_the_inventory_is_written_by_agents_also_through_the_status() -> None:
    spec = policy("vc-egpu-node-cards")
    assert spec["matchConstraints"]["resourceRules"][0]["resources"] == ["nodes", "nodes/status"]
    (check,) = spec["validations"]
    assert Identities().node_agents[0] in check["expression"]
    assert "system:nodes" not in check["expression"]
