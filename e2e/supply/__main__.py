"""``python -m supply [--image [ARCHIVE]] [--output FILE]``: write the bill of materials.

It is about the lock file, or about an image with its Debian packages. It fails where a licence is not
listed, and where a file of the image is of no package.
"""

import argparse
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from vc_egpu import __version__

from supply import lock, sbom
from supply.contents import Contents
from supply.licences import refused

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
_BUILD = "build"
_SHOWN = 10


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where a licence is not on the list, or what is there is not what is locked."""
    flags = argparse.ArgumentParser(prog="supply", description=__doc__)
    flags.add_argument("--output", type=Path, help="default: standard output")
    flags.add_argument("--lock", type=Path, default=LOCK, help="default: requirements.lock")
    flags.add_argument("--image", nargs="?", const=_BUILD, help="an OCI archive; without one, ours is built")
    options = flags.parse_args(argv)
    try:
        locked = lock.read(options.lock.read_text(encoding="utf-8"))
        found, against = _of_image(options.image, locked) if options.image else _of_lock(locked)
    except (lock.LockError, OSError, tarfile.TarError) as error:
        print(f"supply: {error}", file=sys.stderr)
        return 1
    for sentence in against:
        print(f"supply: {sentence}", file=sys.stderr)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(sbom.text(found))
    else:
        print(sbom.text(found), end="")
    return 1 if against else 0


def _of_lock(locked: Sequence[lock.Locked]) -> tuple[sbom.Json, list[str]]:
    packages = [lock.installed(one) for one in locked]
    components = [sbom.of_python(one) for one in packages]
    return sbom.document("vc-egpu", __version__, components), list(refused(packages))


def _of_image(named: str, locked: Sequence[lock.Locked]) -> tuple[sbom.Json, list[str]]:
    contents = Contents.read(_built() if named == _BUILD else Path(named))
    packages, debian = contents.python(locked), contents.debian()
    components = [*map(sbom.of_python, packages), *map(sbom.of_debian, debian)]
    against = list(refused(packages, debian))
    strangers = contents.of_nobody(packages)
    if strangers:
        more = f" and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
        against.append(f"no package has these files: {', '.join(strangers[:_SHOWN])}{more}")
    own = contents.ours()
    return sbom.document("vc-egpu", __version__, components, own=own, machine=contents.machine), against


def _built() -> Path:
    from image.build import build

    return build(lambda line: print(f"==> {line}", file=sys.stderr, flush=True)).archive


if __name__ == "__main__":
    sys.exit(main())
