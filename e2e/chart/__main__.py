"""``python -m chart``: write ``manifests/helm/vc-egpu``."""

import shutil
from pathlib import Path

from chart.write import CHART, files


def main() -> None:
    """Write every file, and take away those that are no more."""
    shutil.rmtree(CHART, ignore_errors=True)
    for name, text in files().items():
        path = Path(CHART, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{CHART}: {len(list(CHART.rglob('*.*')))} files")


main()
