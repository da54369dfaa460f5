"""The layouts that are known of real cards, as the vendors' documents and tools give them."""

from typing import Final

from vc_egpu.core.layouts.table import Layout, Place, Template


def _places(size: int, *starts: int) -> tuple[Place, ...]:
    return tuple(Place(start, size) for start in starts)


def mig(name: str, memory_mib: int) -> Layout:
    """A card with eight memory slices."""
    eighth = memory_mib // 8
    return Layout(
        name,
        {},
        (
            Template("1g", eighth, 14, places=_places(1, *range(7))),
            Template("1g-double", 2 * eighth, 14, places=_places(2, 0, 2, 4, 6)),
            Template("2g", 2 * eighth, 28, places=_places(2, 0, 2, 4)),
            Template("3g", 4 * eighth, 42, places=_places(4, 0, 4)),
            Template("4g", 4 * eighth, 57, places=_places(4, 0)),
            Template("7g", 8 * eighth, 100, places=_places(8, 0)),
        ),
        whole=False,
    )


def mig_a30() -> Layout:
    """Four memory slices."""
    return Layout(
        "mig-a30",
        {},
        (
            Template("1g", 5952, 25, places=_places(1, 0, 1, 2, 3)),
            Template("2g", 11968, 50, places=_places(2, 0, 2)),
            Template("4g", 24062, 100, places=_places(4, 0)),
        ),
        whole=False,
    )


def _npu(name: str, totals: dict[str, int], *rows: tuple[str, int, int, int]) -> Layout:
    return Layout(
        name,
        totals,
        tuple(
            Template(
                each,
                mib,
                100 * cores // totals["aicore"],
                {"aicore": cores} | ({"aicpu": cpus} if cpus else {}),
            )
            for each, mib, cores, cpus in rows
        ),
    )


ASCEND_910B3: Final = _npu(
    "ascend-910b3", {"aicore": 20, "aicpu": 7}, ("vir05_1c_16g", 16384, 5, 1), ("vir10_3c_32g", 32768, 10, 3)
)
ASCEND_910B2: Final = _npu(
    "ascend-910b2",
    {"aicore": 24, "aicpu": 6},
    ("vir03_1c_8g", 8192, 3, 1),
    ("vir06_1c_16g", 16384, 6, 1),
    ("vir12_3c_32g", 32768, 12, 3),
)
ASCEND_310P3: Final = _npu(
    "ascend-310p3",
    {"aicore": 8, "aicpu": 7},
    ("vir01", 3072, 1, 1),
    ("vir02", 6144, 2, 2),
    ("vir04", 12288, 4, 4),
)
ASCEND_910A: Final = _npu(
    "ascend-910a",
    {"aicore": 30},
    ("vir02", 2184, 2, 0),
    ("vir04", 4369, 4, 0),
    ("vir08", 8738, 8, 0),
    ("vir16", 17476, 16, 0),
)
ALL: Final = (
    mig("mig-h100-80g", 81559),
    mig_a30(),
    ASCEND_910B3,
    ASCEND_910B2,
    ASCEND_310P3,
    ASCEND_910A,
)
