"""``python -m supply [--output FILE]``: write the bill of materials; fails where a licence is not listed."""

import argparse
import sys
from pathlib import Path

from vc_egpu import __version__

from supply import lock, sbom
from supply.licences import refused

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where a licence is not on the list, or the environment is not the locked one."""
    flags = argparse.ArgumentParser(prog="supply", description=__doc__)
    flags.add_argument("--output", type=Path, help="default: standard output")
    flags.add_argument("--lock", type=Path, default=LOCK, help="default: requirements.lock")
    options = flags.parse_args(argv)
    try:
        packages = [lock.installed(one) for one in lock.read(options.lock.read_text(encoding="utf-8"))]
    except (lock.LockError, OSError) as error:
        print(f"supply: {error}", file=sys.stderr)
        return 1
    against = list(refused(packages))
    for sentence in against:
        print(f"supply: {sentence}", file=sys.stderr)
    written = sbom.text(sbom.document("vc-egpu", __version__, packages))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(written)
    else:
        print(written, end="")
    return 1 if against else 0


if __name__ == "__main__":
    sys.exit(main())
