"""What `kubectl apply -k` would send: least privilege, hardening, one image, references that hold."""

import re
import shutil
from collections.abc import Callable

import pytest
import yaml
from unit.manifests.kustomize import MANIFESTS, Json, composed, of_kind, overlay, patched, pod_specs, rendered
from vc_egpu.admission import settings as admission
from vc_egpu.jobs.main import parser as jobs_parser
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.node_policy import Policy, parse_policy
from vc_egpu.webhook.serving.options import parse_options
from vc_egpu_node.settings.config import parse_flags

OVERLAYS = ("standalone", "volcano", "local")
NAMESPACE = "vc-egpu-system"


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_process_runs_the_one_image_and_never_pulls_it_anew(name: str) -> None:
    release = yaml.safe_load((MANIFESTS / "components/release/kustomization.yaml").read_text())["images"][0]
    wanted = f"{release['newName']}:{release['newTag']}"
    for spec in pod_specs(overlay(name)).values():
        assert [container["image"] for container in spec["containers"]] == [wanted]
        assert [container["imagePullPolicy"] for container in spec["containers"]] == ["IfNotPresent"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_containers_are_hardened(name: str) -> None:
    for process, spec in pod_specs(overlay(name)).items():
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        assert not any(spec.get(key) for key in ("hostNetwork", "hostIPC"))
        # The driver tells of the processes on a card only to one that sees the host's.
        assert bool(spec.get("hostPID")) is (process == "vc-egpu-node-agent")
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], process
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
        host_paths = [volume for volume in spec["volumes"] if "hostPath" in volume]
        if process == "vc-egpu-node-agent":
            assert spec["priorityClassName"] == "system-node-critical"
        else:
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["priorityClassName"] == "system-cluster-critical"
            assert not host_paths, process


@pytest.mark.parametrize("name", OVERLAYS)
def test_accounts_exist_and_every_role_is_bound_to_one(name: str) -> None:
    objects = overlay(name)
    accounts = {document["metadata"]["name"] for document in of_kind(objects, "ServiceAccount")}
    roles = {(d["kind"], d["metadata"]["name"]) for d in of_kind(objects, "Role", "ClusterRole")}
    bound = set()
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        bound.add((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        for subject in binding["subjects"]:
            assert subject == {"kind": "ServiceAccount", "name": subject["name"], "namespace": NAMESPACE}
            assert subject["name"] in accounts
    assert bound == roles
    assert {spec["serviceAccountName"] for spec in pod_specs(objects).values()} == accounts


@pytest.mark.parametrize("name", OVERLAYS)
def test_at_a_busy_api_server_every_controller_has_a_place_and_no_agent_has(name: str) -> None:
    objects = overlay(name)
    placed = {}
    for schema in of_kind(objects, "FlowSchema"):
        (rule,) = schema["spec"]["rules"]
        subjects = [subject["serviceAccount"] for subject in rule["subjects"]]
        assert all(account["namespace"] == NAMESPACE for account in subjects)
        placed[schema["spec"]["priorityLevelConfiguration"]["name"]] = {a["name"] for a in subjects}
    controllers = {d["metadata"]["name"] for d in of_kind(objects, "ServiceAccount")} - {"vc-egpu-node-agent"}
    assert controllers <= placed["workload-high"] <= controllers | {"vc-egpu-jobs"}
    with_leases = {name for name in controllers if name != "vc-egpu-webhook"}
    assert with_leases <= placed["leader-election"] <= with_leases | {"vc-egpu-jobs"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_roles_name_what_they_need(name: str) -> None:
    for role in of_kind(overlay(name), "Role", "ClusterRole"):
        for rule in role["rules"]:
            where = f"{role['metadata']['name']}: {rule}"
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], where
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), where
            assert not {"roles", "clusterroles", "serviceaccounts/token", "nodes/proxy"} & set(
                rule["resources"]
            )
            reads = {"get", "list", "watch", "update", "patch", "delete"} & set(rule["verbs"])
            if "secrets" in rule["resources"] and reads:
                assert role["kind"] == "Role", where
                assert rule["resourceNames"], where


@pytest.mark.parametrize("name", OVERLAYS)
def test_only_jobs_creates_pods_and_only_admission_evicts(name: str) -> None:
    verbs: dict[tuple[str, str], set[str]] = {}
    for role in of_kind(overlay(name), "ClusterRole"):
        for rule in role["rules"]:
            if "" in rule["apiGroups"]:
                for resource in rule["resources"]:
                    verbs.setdefault((resource, role["metadata"]["name"]), set()).update(rule["verbs"])
    creators = {
        role for (resource, role), granted in verbs.items() if resource == "pods" and "create" in granted
    }
    assert creators == (set() if name == "volcano" else {"vc-egpu-jobs"})
    assert [role for resource, role in verbs if resource == "pods/eviction"] == ["vc-egpu-admission"]
    assert [
        role for (resource, role), granted in verbs.items() if resource == "nodes" and "patch" in granted
    ] == ["vc-egpu-node-agent"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_selectors_find_the_pods(name: str) -> None:
    objects = overlay(name)
    labels = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in of_kind(objects, "Deployment", "DaemonSet")
    ]
    selectors = [d["spec"]["selector"]["matchLabels"] for d in of_kind(objects, "PodDisruptionBudget")]
    selectors += [d["spec"]["selector"] for d in of_kind(objects, "Service")]
    selectors += [d["spec"]["podSelector"].get("matchLabels", {}) for d in of_kind(objects, "NetworkPolicy")]
    for selector in selectors:
        assert any(selector.items() <= have.items() for have in labels), selector


@pytest.mark.parametrize("name", OVERLAYS)
def test_two_replicas_keep_working_through_a_drain(name: str) -> None:
    objects = overlay(name)
    budgets = {
        d["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        for d in of_kind(objects, "PodDisruptionBudget")
    }
    for deployment in of_kind(objects, "Deployment"):
        assert deployment["spec"]["replicas"] == 2
        assert deployment["metadata"]["name"] in budgets


@pytest.mark.parametrize("name", OVERLAYS)
def test_replicas_of_which_none_is_ready_hold_up_no_drain(name: str) -> None:
    """With a model table that cannot be read no webhook comes up: the budget guarded nobody, and kept its
    nodes from being drained."""
    budgets = of_kind(overlay(name), "PodDisruptionBudget")
    assert len(budgets) >= 2
    for budget in budgets:
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", budget["metadata"]["name"]


def test_crds_come_with_standalone_only() -> None:
    names = {d["metadata"]["name"] for d in of_kind(overlay("standalone"), "CustomResourceDefinition")}
    assert names == {
        "jobs.batch.volcano.sh",
        "commands.bus.volcano.sh",
        "hypernodes.topology.volcano.sh",
        "podgroups.scheduling.volcano.sh",
        "queues.scheduling.volcano.sh",
    }
    assert not of_kind(overlay("volcano"), "CustomResourceDefinition")


def test_webhook_and_admission_name_the_same_scheduler() -> None:
    """The kube-scheduler, unless told otherwise; on Volcano its own scheduler for pods without a PodGroup."""
    ungrouped = ["--ungrouped-scheduler-name=volcano"]
    of_volcano = ["--scheduler-name=volcano", "--binder=scheduler", "--scheduler=volcano"]
    for folder, wanted in (
        ("manifests/overlays/standalone", []),
        ("manifests/overlays/volcano", ungrouped),
        ("e2e/volcano/overlay-vc", [*ungrouped, *of_volcano]),
    ):
        specs = pod_specs(rendered(folder))
        said = [
            argument
            for process in ("vc-egpu-webhook", "vc-egpu-admission")
            for argument in specs[process]["containers"][0]["args"]
            if "scheduler" in argument
        ]
        assert said == wanted


def test_next_to_volcano_our_job_controller_makes_podgroups_and_nothing_else() -> None:
    parts = "components: [../../manifests/overlays/volcano/direct-deployments]\n"
    objects = patched(parts, overlay="volcano")
    specs = pod_specs(objects)
    assert "--direct-without-group=true" in specs["vc-egpu-webhook"]["containers"][0]["args"]
    assert jobs_parser().parse_args(specs["vc-egpu-jobs"]["containers"][0]["args"][1:]).groups_only
    (role,) = [one for one in of_kind(objects, "ClusterRole") if one["metadata"]["name"] == "vc-egpu-jobs"]
    asked = {(name, verb) for rule in role["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    assert {("podgroups", "create"), ("pods", "patch")} <= asked
    assert not {(name, verb) for name, verb in asked if verb == "delete" or name.startswith("queues")}
    assert ("pods", "create") not in asked


def test_without_vc_scheduler_our_job_controller_counts() -> None:
    parts = "".join(
        f"  - ../../manifests/overlays/volcano/{name}\n"
        for name in ("direct-deployments", "without-scheduler")
    )
    objects = patched(f"components:\n{parts}", overlay="volcano")
    arguments = jobs_parser().parse_args(pod_specs(objects)["vc-egpu-jobs"]["containers"][0]["args"][1:])
    assert arguments.groups_only
    assert arguments.counts
    (role,) = [one for one in of_kind(objects, "ClusterRole") if one["metadata"]["name"] == "vc-egpu-jobs"]
    asked = {(name, verb) for rule in role["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    assert {("queues", "watch"), ("queues/status", "update"), ("podgroups", "patch")} <= asked
    assert ("queues", "update") not in asked


def test_fake_gpus_are_in_no_product_overlay() -> None:
    for name in ("standalone", "volcano"):
        text = yaml.safe_dump_all(overlay(name))
        assert "FAKE" not in text
        assert "fake" not in text


@pytest.mark.parametrize("component", ["components/fake-gpus/models.yaml", "base/config/models.yaml"])
def test_model_tables_can_be_read(component: str) -> None:
    table = ModelTable.from_yaml((MANIFESTS / component).read_text())
    assert {"h20", "a100-80g", "t4"} <= {model.name for model in table.models}
    assert all(model.products for model in table.models)


def test_the_agent_s_policy_can_be_read() -> None:
    text = (MANIFESTS / "base/config/node-policy.yaml").read_text()
    assert parse_policy(text, "any") == Policy()


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_agent_starts_without_its_config_maps(name: str) -> None:
    """It goes by what was good last. A pod whose ConfigMap was deleted does not start, and no agent comes
    back after a reboot."""
    volumes = pod_specs(overlay(name))["vc-egpu-node-agent"]["volumes"]
    maps = {one["name"]: one["configMap"] for one in volumes if "configMap" in one}
    assert {"models", "policy"} <= set(maps)
    assert all(one["optional"] for one in maps.values())


@pytest.mark.parametrize("name", OVERLAYS)
def test_flags_are_those_of_the_processes(name: str) -> None:
    """A flag that a process does not know would keep it from starting."""
    readers: dict[str, Callable[[list[str]], object]] = {
        "admission": admission.parse,
        "webhook": lambda argv: parse_options(argv, {}),
        "node-agent": parse_flags,
    }
    for spec in pod_specs(overlay(name)).values():
        process, *flags = spec["containers"][0]["args"]
        if process in readers:
            readers[process](flags)
        else:
            jobs_parser().parse_args(flags)


def test_the_driver_s_root_instead_of_the_toolkit_s_runtime() -> None:
    """An operator's own overlay: components are swapped from outside."""
    spec = pod_specs(composed("driver-root"))["vc-egpu-node-agent"]
    assert "runtimeClassName" not in spec
    (agent,) = spec["containers"]
    assert agent["securityContext"]["privileged"] is True
    env = {entry["name"]: entry.get("value") for entry in agent["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env["LD_LIBRARY_PATH"].startswith("/driver/")
    (root,) = [mount for mount in agent["volumeMounts"] if mount["name"] == "driver"]
    assert root["mountPropagation"] == "HostToContainer", "a driver container may mount it later"


@pytest.mark.parametrize("components", [("other-vendors",), ("driver-root", "other-vendors")])
def test_agents_find_the_drivers_of_other_vendors(components: tuple[str, ...]) -> None:
    """A pod that names RuntimeClass nvidia would not start on their nodes."""
    spec = pod_specs(composed(*components))["vc-egpu-node-agent"]
    assert "runtimeClassName" not in spec
    (agent,) = spec["containers"]
    settings = parse_flags(agent["args"][1:])
    assert settings.vendors == ("nvidia", "ascend", "hygon")
    assert agent["securityContext"]["privileged"] is True
    path_of = {volume["name"]: (volume.get("hostPath") or {}).get("path") for volume in spec["volumes"]}
    seen = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    assert len(seen) == len(agent["volumeMounts"]), "two volumes at one place"
    root, dev = seen[str(settings.host_root)], seen[str(settings.dev_dir)]
    assert (path_of[root["name"]], path_of[dev["name"]]) == ("/", "/dev")
    assert root["readOnly"] and not dev.get("readOnly")
    assert (seen.get("/driver") is None) == ("driver-root" not in components)
    kinds = {volume["name"]: (volume.get("hostPath") or {}).get("type") for volume in spec["volumes"]}
    assert kinds.get("driver") in {None, "DirectoryOrCreate"}, "nodes of others have no such folder"


def test_the_toolkit_s_runtime_is_asked_for_no_compute() -> None:
    spec = pod_specs(overlay("standalone"))["vc-egpu-node-agent"]
    assert spec["runtimeClassName"] == "nvidia"
    env = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_cards_are_tried_only_where_the_operator_asks_for_it() -> None:
    (plain,) = pod_specs(overlay("standalone"))["vc-egpu-node-agent"]["containers"]
    assert not any(argument.startswith("--probe-cuda") for argument in plain["args"])
    for components in (("cuda-probe",), ("driver-root", "cuda-probe")):
        (agent,) = pod_specs(composed(*components))["vc-egpu-node-agent"]["containers"]
        assert parse_flags(agent["args"][1:]).probe_cuda_interval_s == 3600.0
        env = {entry["name"]: entry.get("value") for entry in agent["env"]}
        assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
        assert agent["resources"]["limits"]["memory"] == "1536Mi"


def test_the_overlay_that_the_operators_page_shows_can_be_built() -> None:
    """As it stands there, next to a checkout: image and settings are the operator's own."""
    page = (MANIFESTS.parent / "docs" / "operator.md").read_text()
    text = next(block for block in page.split("```yaml\n")[1:] if "configMapGenerator" in block)
    folder = MANIFESTS.parent / "build" / "test-own-overlay"
    folder.mkdir(parents=True, exist_ok=True)
    shown = text.split("```")[0].replace("../vc-egpu/", "../../")
    (folder / "kustomization.yaml").write_text(shown)
    for name, source in (("models.yaml", "models.yaml"), ("policy.yaml", "node-policy.yaml")):
        (folder / name).write_text((MANIFESTS / "base" / "config" / source).read_text() + "# ours\n")
    try:
        built = rendered("build/test-own-overlay")
    finally:
        shutil.rmtree(folder)
    images = {spec["containers"][0]["image"] for spec in pod_specs(built).values()}
    assert images == {"registry.example/vc-egpu:0.1.0"}
    maps = {document["metadata"]["name"]: document for document in built if document["kind"] == "ConfigMap"}
    for name in ("vc-egpu-models", "vc-egpu-node-policy"):  # no suffix: running processes read them again
        assert "# ours" in next(iter(maps[name]["data"].values()))


def test_the_operator_s_patch_for_kubelets_elsewhere_moves_one_volume() -> None:
    text = (MANIFESTS.parent / "docs" / "operator.md").read_text()
    (patch,) = re.findall(r"```yaml\n(patches:\n(?:.(?!```))*?pod-resources.*?)```", text, re.DOTALL)
    volumes = {volume["name"]: volume for volume in _agent(overlay("standalone"))["volumes"]}
    moved = {volume["name"]: volume for volume in _agent(patched(patch))["volumes"]}
    path = {"path": "/var/lib/k0s/kubelet/pod-resources", "type": "Directory"}
    assert moved == {**volumes, "pod-resources": {"name": "pod-resources", "hostPath": path}}


def _agent(objects: tuple[Json, ...]) -> Json:
    return pod_specs(objects)["vc-egpu-node-agent"]


def test_where_critical_classes_are_limited_a_quota_names_all_that_we_use() -> None:
    (quota,) = of_kind(composed("isolation", "suspension", "critical-quota"), "ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    used = {spec["priorityClassName"] for spec in pod_specs(overlay("standalone")).values()}
    assert (quota["metadata"]["namespace"], scope["scopeName"]) == (NAMESPACE, "PriorityClass")
    assert used == set(scope["values"])


def test_nobody_names_nvidia_s_runtime_class_but_who_is_named() -> None:
    """Our own pods that do are in our namespace, which the policy leaves out."""
    objects = composed("closed-runtime-class", "nvidia-runtime")
    (policy,) = (
        one for one in of_kind(objects, "ValidatingAdmissionPolicy") if "runtime" in one["metadata"]["name"]
    )
    (binding,) = (
        one
        for one in of_kind(objects, "ValidatingAdmissionPolicyBinding")
        if one["spec"]["policyName"] == policy["metadata"]["name"]
    )
    by_name = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][1]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert NAMESPACE in by_name["values"]
    removed_by = {"app.kubernetes.io/part-of": "vc-egpu"}
    assert (policy["metadata"]["labels"], binding["metadata"]["labels"]) == (removed_by, removed_by)
    assert _agent(objects)["runtimeClassName"] == "nvidia"
