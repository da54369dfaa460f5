"""`manifests/remove` where something does not go: it stops with a word, and waits for nothing for ever."""

import os
import subprocess
from pathlib import Path

import pytest
from unit.manifests.kustomize import MANIFESTS

KUBECTL = """#!/bin/sh
echo "$*" >>{calls}
case "$*" in
*"{broken}"*) exit 1 ;;
*"get namespace"*) echo namespace/vc-egpu-system ;;
*"get podtemplate"*) echo podtemplate/vc-egpu-checkpoint ;;
*"get nodes -o go-template"*) echo n1 ;;
*"get nodes -l"*) echo node/n1 ;;
*"get deployment vc-egpu-admission -o go"*) echo "{image}" ;;
*"get deployment vc-egpu-admission"*) echo deployment.apps/vc-egpu-admission ;;
*"kustomize "*) echo "          image: egpu.volcano.sh/vc-egpu:0.1.0" ;;
*"apply "*" -f -") cat >>{calls}.applied ;;
esac
"""
OWN_IMAGE = "registry.example:5000/vc-egpu:0.1.0-7"


HELM = """#!/bin/sh
echo "helm $*" >>{calls}
case "$*" in *"{broken}"*) exit 1 ;; esac
"""


def remove(
    folder: Path, broken: str, *, what: tuple[str, ...] = ("volcano",), **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script against a kubectl and a helm that fail at one thing; all calls of them."""
    helm = folder / "helm"
    helm.write_text(HELM.format(calls=folder / "calls", broken=broken))
    helm.chmod(0o755)
    kubectl, calls = folder / "kubectl", folder / "calls"
    image = environment.pop("IMAGE", OWN_IMAGE)
    kubectl.write_text(KUBECTL.format(calls=calls, broken=broken, image=image))
    kubectl.chmod(0o755)
    done = subprocess.run(
        [MANIFESTS / "remove", *what],
        env=os.environ | {"KUBECTL": str(kubectl), "HELM": str(helm)} | environment,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done, calls.read_text().splitlines()


def test_all_steps_in_their_order(tmp_path: Path) -> None:
    done, calls = remove(tmp_path, "nothing breaks")
    assert done.returncode == 0, done.stderr
    steps = (
        "delete daemonset vc-egpu-node-agent",
        "delete mutatingwebhook",  # or pods that are made after the drain would wait at the gate for ever
        "--drain",
        "delete validatingadmissionpolicy",
        "delete clusterrolebinding,clusterrole vc-egpu-scrape",
    )
    places = [next(i for i, call in enumerate(calls) if step in call) for step in steps]
    assert places == sorted(places)
    waits = [call for call in calls if "--wait=true" in call and "delete" in call]
    assert waits
    assert all("--timeout=" in call for call in waits), "a dead node would hold it for ever"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("delete daemonset vc-egpu-node-agent", "its node is not ready"),
        ("rollout status", "a node could not be cleaned"),
        ("--drain", "DRAINED=1"),
    ],
)
def test_what_does_not_go_is_said_and_nothing_is_taken_away_behind_it(
    tmp_path: Path, broken: str, words: str
) -> None:
    done, calls = remove(tmp_path, broken)
    assert done.returncode != 0
    assert words in done.stderr
    assert not any("delete validatingadmissionpolicy" in call for call in calls)


@pytest.mark.parametrize(
    "asked",
    [
        "get namespace",
        "get podtemplate",
        "get pods --all-namespaces",
        "get nodes -o go-template",
        "get nodes -l",
        "get deployment vc-egpu-admission --ignore",
    ],
)
def test_an_api_server_that_does_not_answer_is_no_answer(tmp_path: Path, asked: str) -> None:
    """It was taken for "nothing there". Suspended pods were left without agents, nodes as they were, and pods
    at the gate."""
    done, calls = remove(tmp_path, asked)
    assert any(asked in call for call in calls)
    assert done.returncode != 0
    assert not any("delete validatingadmissionpolicy" in call for call in calls)
    if "nodes" not in asked and "deployment" not in asked:
        assert not any("delete daemonset" in call for call in calls)


def test_who_ungated_by_hand_goes_on(tmp_path: Path) -> None:
    done, calls = remove(tmp_path, "--drain", DRAINED="1")
    assert done.returncode == 0, done.stderr
    assert not any("--drain" in call for call in calls)


@pytest.mark.parametrize(("runs", "cleans"), [(OWN_IMAGE, OWN_IMAGE), ("", "egpu.volcano.sh/vc-egpu:0.1.0")])
def test_nodes_are_cleaned_by_the_image_that_runs_here(tmp_path: Path, runs: str, cleans: str) -> None:
    """An operator's own overlay has it from elsewhere, and nodes can pull no other."""
    done, _ = remove(tmp_path, "nothing breaks", IMAGE=runs)
    assert done.returncode == 0, done.stderr
    assert f"image: {cleans}\n" in (tmp_path / "calls.applied").read_text()


@pytest.mark.parametrize(
    ("what", "release"),
    [
        (("helm",), "vc-egpu --namespace default"),
        (("helm", "cards", "platform"), "cards --namespace platform"),
    ],
)
def test_a_chart_is_uninstalled_last(tmp_path: Path, what: tuple[str, ...], release: str) -> None:
    """By itself it would leave pods at the gate, and nodes as they are."""
    done, calls = remove(tmp_path, "nothing breaks", what=what)
    assert done.returncode == 0, done.stderr
    steps = (
        f"helm status {release}",
        "delete daemonset",
        "--drain",
        "delete validatingadmission",
        f"helm uninstall {release}",
    )
    places = [next(i for i, call in enumerate(calls) if step in call) for step in steps]
    assert places == sorted(places)
    assert not any("delete -k" in call and "removal" not in call for call in calls), "Helm takes its own"
    (uninstall,) = (call for call in calls if "helm uninstall" in call)
    assert "--timeout" in uninstall


def test_a_release_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    done, calls = remove(tmp_path, "status", what=("helm", "typo"))
    assert done.returncode == 2
    assert "no release typo in default" in done.stderr
    assert not any("delete" in call or "apply" in call for call in calls)


def test_an_overlay_that_is_not_there_and_no_word_at_all(tmp_path: Path) -> None:
    for what, word in ((("nowhere",), "no kustomization.yaml"), ((), "manifests/remove helm")):
        done = subprocess.run(
            [MANIFESTS / "remove", *what],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
        )
        assert done.returncode == 2
        assert word in done.stderr
