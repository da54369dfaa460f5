"""``kubectl egpu ui`` as a process: it prints a link, serves it, and ends when told to."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from unit.page.cluster_api import ClusterApi
from unit.page.serving import Client
from vc_egpu.cli import kubectl
from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_NO_CLUSTER
from vc_egpu.kube.server import listening


def test_it_serves_until_it_is_interrupted(api: ClusterApi, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "vc_egpu.cli.kubectl",
        "ui",
        "--kubeconfig",
        str(api.kubeconfig(tmp_path)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        link = re.search(r"(http://127\.0\.0\.1:\d+)(/\?token=\S+)", process.stdout.readline())
        assert link is not None
        client = Client(link[1])
        assert client.get(link[2]).status == 303
        with client.stream() as events:
            assert next(events)[0] == "hello"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
    finally:
        process.kill()
        _, said = process.communicate()
    assert "Traceback" not in said


def test_a_token_that_is_not_good_is_a_sentence(
    api: ClusterApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = kubectl.main(["ui", "--kubeconfig", str(api.kubeconfig(tmp_path, "wrong"))])
    said = capsys.readouterr().err
    assert status != 0
    assert "Traceback" not in said
    assert "wrong" not in said


def test_a_port_that_is_taken_is_a_sentence(
    api: ClusterApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        status = kubectl.main(["ui", "--port", port, "--kubeconfig", str(api.kubeconfig(tmp_path))])
    assert status == EXIT_FOUND
    assert f"port {port} cannot be used" in capsys.readouterr().err


def test_no_cluster_is_a_sentence(tmp_path: Path) -> None:
    assert kubectl.main(["ui", "--kubeconfig", str(tmp_path / "none")]) == EXIT_NO_CLUSTER
