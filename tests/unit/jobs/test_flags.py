"""Flags of Volcano's Job plugins: each is obeyed, or refused with a reason; docs/jobs.md has the table."""

from pathlib import Path

import pytest
from unit.jobs.worlds import job, task
from vc_egpu.jobs.rules.defaults import problems
from vc_egpu.jobs.rules.flags import PluginError, boolean, port, read_flags
from vc_egpu.jobs.rules.plugins import PLUGINS

PAGE = Path(__file__).resolve().parents[3] / "docs/jobs.md"
OF_VOLCANO = {
    "env": [],
    "svc": ["publish-not-ready-addresses", "disable-network-policy", "inject-hosts-env"],
    "pytorch": [
        "master",
        "worker",
        "port",
        "wait-master-enabled",
        "wait-master-timeout",
        "wait-master-image",
    ],
    "ssh": ["ssh-key-file-path", "ssh-private-key", "ssh-public-key", "ssh-port"],
    "mpi": ["master", "worker", "port"],
    "tensorflow": ["ps", "worker", "chief", "evaluator", "port"],
    "ray": ["head", "headContainer", "worker", "workerContainer", "port", "dashboardPort", "clientPort"],
    "hcclrank": ["master", "worker"],
}
"""Of 1.15.1 and 1.16.0-alpha.1: all plugins that its Job controller registers, and all that they declare."""
VALUES = {
    "port": "29500",
    "master": "master",
    "worker": "worker",
    "wait-master-timeout": "60",
    "wait-master-image": "busybox",
}


@pytest.mark.parametrize("plugin", OF_VOLCANO)
def test_each_flag_stands_in_the_docs(plugin: str) -> None:
    page = PAGE.read_text()
    assert f"| `{plugin}` |" in page
    for flag in OF_VOLCANO[plugin]:
        assert f"`--{flag}`" in page


@pytest.mark.parametrize(("plugin", "flag"), [(p, f) for p in PLUGINS for f in OF_VOLCANO[p]])
def test_each_flag_is_obeyed_or_refused_by_name(plugin: str, flag: str) -> None:
    subject = job(task("master"), task("worker"), plugins={plugin: [f"--{flag}={VALUES.get(flag, 'true')}"]})
    found = problems(subject)
    if flag == "wait-master-enabled":
        assert found == ["spec.plugins[pytorch]: --wait-master-enabled needs Volcano's own controllers"]
    else:
        assert found == []


def test_a_plugin_of_volcanos_that_is_not_here_is_refused_by_name() -> None:
    for plugin in OF_VOLCANO.keys() - PLUGINS.keys():
        (found,) = problems(job(plugins={plugin: []}))
        assert (
            found == f"spec.plugins: {plugin!r} needs Volcano's controllers; here there are env, svc, pytorch"
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--on", "--port=1"], {"on": True, "port": 1}),
        (["-on=F", "-port", "65535"], {"on": False, "port": 65535}),
        (["--on", "false"], {"on": False}),
        (["--name", "--on"], {"name": "--on"}),
        (["--name=a=b", "--name="], {"name": ""}),
        ([], {}),
    ],
)
def test_arguments_are_gos(arguments: list[str], expected: dict[str, object]) -> None:
    assert read_flags("x", arguments, {"on": boolean, "port": port, "name": str}) == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--what"], "x has no argument '--what'"),
        (["-what=1"], "x has no argument '--what=1'"),
        (["what"], "x has no argument 'what'"),
        (["--port"], "argument --port: a value has to follow"),
        (["--port=-1"], "argument --port: '-1' is no port"),
        (["--on=maybe"], "argument --on: 'maybe' is neither true nor false"),
        (["--" + "x" * 100_000], "x has no argument '--xxxx"),
        (["--on=" + "x" * 100_000], "argument --on: 'xxxx"),
    ],
)
def test_what_cannot_be_read_is_refused_in_few_words(arguments: list[str], text: str) -> None:
    with pytest.raises(PluginError) as caught:
        read_flags("x", arguments, {"on": boolean, "port": port})
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) < 200


def test_many_arguments_are_read_once_each() -> None:
    """Sixteen thousand took 57 seconds."""
    read: list[str] = []
    read_flags("x", ["--name", "a"] * 16_000, {"name": read.append})
    assert len(read) == 16_000
