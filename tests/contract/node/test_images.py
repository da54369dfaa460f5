"""What a real containerd tells of its images, and the rows that become of it."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from localcluster.oci import ImageConfig, Text, build_image
from localcluster.toolchain import program
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu_node import images
from vc_egpu_node.kubelet.images import ImagesError, environment_in, images_on

CUDA = "docker.io/library/cuda:12.4"
OWN = "registry.example/own/qwen:1"
PLAIN = "registry.example/own/plain:1"
REQUIRE = "cuda>=12.4 brand=tesla,driver>=470,driver<471"
VARIABLES = {CUDA: {"NVIDIA_REQUIRE_CUDA": REQUIRE}, OWN: {"CUDA_VERSION": "12.8.1"}, PLAIN: {"A": "1"}}
STARTS_S = 60.0
CONFIG = """
version = 3
root = "{0}/root"
state = "{0}/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{0}/c.sock"
[ttrpc]
  address = "{0}/c.sock.ttrpc"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
[plugins."io.containerd.internal.v1.opt"]
  path = "{0}/opt"
"""


def archive(name: str, folder: Path, **env: str) -> Path:
    output = folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
    config = ImageConfig(entrypoint=("/x",), env=env)
    build_image(None, name, files={"/x": Text(name)}, config=config, output=output)
    return output


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A containerd of its own, with three images."""
    try:
        containerd = program("containerd")
    except Exception as error:  # noqa: BLE001 - the toolchain has not been built
        pytest.skip(f"no containerd: {error}")
    folder = Path(str(tmp_path_factory.mktemp("c")))
    (folder / "config.toml").write_text(CONFIG.format(folder))
    found, log = folder / "c.sock", (folder / "log").open("wb")
    words = [str(containerd), "--config", str(folder / "config.toml")]
    with ExitStack() as stack, log:
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)
        ctr = [str(containerd.with_name("ctr")), "--address", str(found), "--namespace", "k8s.io"]
        _until(lambda: _answers(found))
        for name, env in VARIABLES.items():
            given = [*ctr, "images", "import", "--no-unpack", str(archive(name, folder, **env))]
            subprocess.run(given, capture_output=True, check=True)
        _until(lambda: len(images_on(found)) == len(VARIABLES))
        yield found


def _answers(socket: Path) -> bool:
    try:
        images_on(socket)
    except ImagesError:
        return False
    return True


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + STARTS_S
    while not done():
        assert time.monotonic() < end, "containerd did not come up"
        time.sleep(0.1)


def test_variables_of_images_are_what_containerd_tells(socket: Path) -> None:
    found = {image.name: image.environment for image in images_on(socket)}
    assert sorted(found) == sorted((CUDA, OWN, PLAIN))
    assert found[CUDA]["NVIDIA_REQUIRE_CUDA"] == REQUIRE
    assert found[OWN]["CUDA_VERSION"] == "12.8.1"


def test_the_rows_are_a_table_that_can_be_used(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert images.main(["--socket", str(socket)]) == 0
    text = capsys.readouterr().out
    table = EnvironmentTable.from_yaml(text)
    rows = [row["image"] for row in yaml.safe_load(text)["images"]]
    assert rows == [CUDA, "cuda:12.4", "library/cuda:12.4", OWN]
    assert table.needs_of_image("cuda:12.4") == ("cuda>=12.4", "driver>=470,driver<471")
    assert table.needs_of_image(OWN) == ("cuda>=12.8",)
    assert table.needs_of_image(PLAIN) == ()


def test_a_runtime_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert images.main(["--socket", str(tmp_path / "none.sock")]) == 1
    assert "none.sock: UNAVAILABLE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"imageSpec": 1}', '{"imageSpec": {"config": {"Env": "A"}}}', "[" * 9999]
)
def test_what_is_no_configuration_has_no_variables(text: str) -> None:
    assert environment_in(text) == {}
