"""The runtime's hook: the image's own preload lines stay, and nothing of an image leads it elsewhere."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[3] / "device-plugin" / "native"
LINE = "/usr/local/vc-egpu/$LIB/libvgpu-egpu.so"


@dataclass
class Bundle:
    """A container about to start."""

    folder: Path
    hook: Path

    def __post_init__(self) -> None:
        self.root = self.folder / "rootfs"
        self.root.mkdir(parents=True)
        self.merged = self.folder / "merged"
        self.config = json.dumps(
            {"process": {"root": {"path": "/"}}, "root": {"path": "rootfs", "readonly": True}}
        )

    def run(self, look: str = "cat etc/ld.so.preload", *unshare: str) -> "subprocess.CompletedProcess[str]":
        """The hook, then a look at the container's root, in a mount namespace of their own."""
        (self.folder / "config.json").write_text(self.config)
        state = {
            "ociVersion": "1.2.0",
            "annotations": {"bundle": "/elsewhere", 'x"},"bundle":"/e': '\\"}'},
            "list": [1, {"bundle": "/elsewhere"}],
            "bundle": str(self.folder),
            "pid": 1,
        }
        unshare = unshare or (("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm"))
        script = f'mount --make-rprivate / && "{self.hook}" "$1" "$2" && cd "{self.root}" && {look}'
        return subprocess.run(
            [*unshare, "sh", "-c", script, "sh", LINE, str(self.merged)],
            input=json.dumps(state), capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def hook() -> Path:
    subprocess.run(["make", "-s", "-C", str(NATIVE), "build/egpu-preload"], check=True)
    return NATIVE / "build" / "egpu-preload"


@pytest.fixture
def bundle(tmp_path: Path, hook: Path) -> Bundle:
    return Bundle(tmp_path / "bundle", hook)


def test_the_images_lines_stay_and_the_image_is_not_changed(bundle: Bundle) -> None:
    (bundle.root / "etc").mkdir()
    own = bundle.root / "etc" / "ld.so.preload"
    own.write_text("/lib/libjemalloc.so\n")
    run = bundle.run("cat etc/ld.so.preload; echo x > etc/ld.so.preload")
    assert run.stdout == f"{LINE}\n/lib/libjemalloc.so\n"
    assert "Read-only file system" in run.stderr
    assert own.read_text() == "/lib/libjemalloc.so\n"
    again = bundle.run()  # the container starts again
    assert again.stdout == f"{LINE}\n/lib/libjemalloc.so\n", again.stderr
    assert sorted(path.name for path in bundle.folder.iterdir()) == ["config.json", "merged", "rootfs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder has to be somebody else's")
def test_where_the_containers_root_is_nobody_on_the_host(bundle: Bundle) -> None:
    """A pod with ``hostUsers: false``: the agent's folder is not its to write to."""
    (bundle.root / "etc").mkdir()
    (bundle.root / "etc" / "ld.so.preload").write_text("/lib/libjemalloc.so\n")
    agents = bundle.folder / "agents"
    agents.mkdir()
    os.chown(agents, 12345, 12345)
    bundle.merged = agents / "merged"
    look = (
        f"cat etc/ld.so.preload; echo x > etc/ld.so.preload; ls {agents}; grep -c egpu-preload /proc/mounts"
    )
    run = bundle.run(look, "unshare", "-rm")
    assert run.stdout == f"{LINE}\n/lib/libjemalloc.so\n1\n", run.stderr  # the one mount: the file
    assert "Read-only file system" in run.stderr
    assert list(agents.iterdir()) == []


@pytest.mark.parametrize("folder", [True, False])
def test_an_image_without_such_a_file(bundle: Bundle, folder: bool) -> None:
    if folder:
        (bundle.root / "etc").mkdir()
    run = bundle.run()
    assert (run.stdout, run.returncode) == (f"{LINE}\n", 0), run.stderr


def test_links_lead_nowhere_but_into_the_image(bundle: Bundle, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host\n")
    inside = bundle.root / str(secret).lstrip("/")
    inside.parent.mkdir(parents=True)
    inside.write_text("image\n")
    (bundle.root / "etc").symlink_to("/../../../../conf")
    (bundle.root / "conf").mkdir()
    (bundle.root / "conf" / "ld.so.preload").symlink_to(secret)
    run = bundle.run(f'cat "./{secret}" "{secret}"')
    assert run.stdout == f"{LINE}\nimage\nhost\n", run.stderr


def test_what_others_rename_meanwhile_keeps_no_container_from_starting(
    bundle: Bundle, tmp_path: Path
) -> None:
    """The kernel gives up a look-up with ".." in it when anything on the machine is renamed or mounted."""
    (bundle.root / "conf").mkdir()
    (bundle.root / "conf" / "ld.so.preload").write_text("image\n")
    (bundle.root / "etc").symlink_to("../" * 500 + "conf")
    folder = tmp_path / "renamed"
    folder.mkdir()
    loop = "import os\nwhile True: os.rename('renamed', 'other'); os.rename('other', 'renamed')"
    renaming = subprocess.Popen([sys.executable, "-c", loop], cwd=tmp_path)
    try:
        for _ in range(20):
            run = bundle.run("cat conf/ld.so.preload")
            assert run.stdout == f"{LINE}\nimage\n", run.stderr
    finally:
        renaming.kill()
        renaming.wait()


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ("mkfifo", "is no file"),
        ("folder", "is no file"),
        ("huge", "is too long"),
        ("zeros", "holds zero bytes"),
        ("dangling", "Too many levels|File exists|No such file"),
    ],
)
def test_an_odd_image_does_not_start(bundle: Bundle, spoil: str, text: str) -> None:
    (bundle.root / "etc").mkdir()
    path = bundle.root / "etc" / "ld.so.preload"
    match spoil:
        case "mkfifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "huge":
            path.write_bytes(b"x" * 70_000)
        case "zeros":
            path.write_bytes(b"a\0b")
        case "dangling":
            path.symlink_to("/nowhere/at/all")
    run = bundle.run()
    assert run.returncode != 0
    assert any(one in run.stderr for one in text.split("|")), run.stderr


@pytest.mark.parametrize(
    "config", ["", "[]", "{", '{"root": "x"}', '{"root": {"path": ""}}', '{"root": {"path": "a\\u0000b"}}',
               '{"root": {"path": "nowhere"}}', '{"a": ' + "[" * 100 + "}"],
)  # fmt: skip
def test_a_bundle_that_says_nothing(bundle: Bundle, config: str) -> None:
    bundle.config = config
    run = bundle.run()
    assert run.returncode != 0
    assert run.stderr.startswith("egpu-preload: ")
