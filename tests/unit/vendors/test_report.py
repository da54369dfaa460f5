"""The report that an owner of real cards sends."""

import json
from pathlib import Path

import pytest
from vc_egpu_node.vendors.report import main
from vendor_nodes import BUILD, AscendNode


def test_it_says_what_the_library_says(
    ascend: AscendNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "usr/local/Ascend/driver/lib64/driver"
    folder.mkdir(parents=True)
    (folder / "libdcmi.so").symlink_to(BUILD / "libdcmi.so")
    (folder.parents[1] / "version.info").write_text("Version=25.2.0\n", encoding="utf-8")
    monkeypatch.setenv("FAKE_DCMI_STATE", str(ascend.script.path))
    ascend.script.say(1, error=-8006)
    assert main(["--vendor=ascend", f"--host-root={tmp_path}", f"--dev-dir={tmp_path}"]) == 0
    told = json.loads(capsys.readouterr().out)["vendors"]["ascend"]
    assert told["versions"] == {"library": "25.2.0", "driver": "25.2.0"}
    (card,) = told["cards"]
    assert card["product"] == "Ascend910B3" and card["sample"]["memory_free_mib"] == 65536
    assert card["unusable"].startswith("/dev/davinci_manager is not there") and card["slices"] == []
    assert "answers -8006" in told["problem"] and told["structBytes"]["dcmi_vdev_query"] == 264
