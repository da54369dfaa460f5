"""The committed gRPC stubs are what the .proto files say."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3] / "device-plugin"
API = Path("vc_egpu_node") / "kubelet_api"


def test_stubs_are_up_to_date(tmp_path: Path) -> None:
    (tmp_path / API).mkdir(parents=True)
    protos = sorted((ROOT / API).glob("*.proto"))
    for proto in protos:
        shutil.copy(proto, tmp_path / API)
    names = [str(API / proto.name) for proto in protos]
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I.",
        "--python_out=.",
        "--grpc_python_out=.",
        *names,
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = sorted((tmp_path / API).glob("*_pb2*.py"))
    assert len(made) == 2 * len(protos)
    for path in made:
        committed = ROOT / API / path.name
        assert path.read_text() == committed.read_text(), (
            f"{committed}: run make -C device-plugin/native regen"
        )
