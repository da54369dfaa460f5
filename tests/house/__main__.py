"""``make house``: the structure as a table, and one JSON object as the last line."""

import json
from pathlib import Path

from house.floors import CONTROL_PLANE, FLOORS, GENERATED, NODE, ROOT
from house.measure import Row, c_files, folders, modules_of, private_touches, row_of

_HEAD = f"{'room':34} {'modules':>7} {'lines':>6} {'levels':>6} {'arrows':>6} {'back up':>7}"


def _print(row: Row, indent: str = "") -> None:
    print(
        f"{indent + row.name.removeprefix('vc_egpu.'):34} {row.modules:7} {row.lines:6} {row.levels:6} "
        f"{row.arrows:6} {len(row.back_up):7}"
    )


def _lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(errors="replace").splitlines()) for path in paths)


def main() -> None:
    """Print the table."""
    print(_HEAD)
    back = 0
    for package, floors in FLOORS.items():
        modules = modules_of(package)
        whole = row_of(package, modules)
        back += len(whole.back_up)
        _print(whole)
        for room in floors:
            row = row_of(package, modules, room)
            if row.modules > 1:
                _print(row, "  ")
        for importer, target in whole.back_up:
            print(f"    back up: {importer} -> {target}")
    touches = private_touches()
    print("\nprivate names that tests touch")
    for place, where in touches.items():
        print(f"  {place:32} {len(where):7}")
    product = [
        p
        for base in (CONTROL_PLANE, NODE / "vc_egpu_node")
        for p in base.rglob("*.py")
        if p.parent.name not in GENERATED
    ]
    tests = [p for p in (ROOT / "tests").rglob("*") if p.suffix in {".py", ".txt"}]
    tests += list((ROOT / "e2e").rglob("*.py"))
    sources = c_files()
    print(
        json.dumps(
            {
                "arrows_back_up": back,
                "most_modules_in_a_folder": max(max(folders(p).values(), default=0) for p in FLOORS),
                "longest_module": max(len(p.read_text().splitlines()) for p in (*product, *sources)),
                "private_touches": sum(map(len, touches.values())),
                "lines_product": _lines(product + sources),
                "lines_tests": _lines(tests),
            }
        )
    )


if __name__ == "__main__":
    main()
