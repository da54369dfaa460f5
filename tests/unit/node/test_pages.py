"""Control pages: their layout against a C compiler's, what they say, and how they change under readers."""

import ctypes
import dataclasses
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.node.granted import grant, page_of
from vc_egpu_node.containers.cdi import ControlError
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.control import (
    CardFacts,
    decode,
    encode,
    neighbours,
)
from vc_egpu_node.isolation.unseen_memory import Beyond

ABI = Path(__file__).resolve().parents[3] / "device-plugin" / "native" / "abi"
NATIVE = ABI.parent
CONSTANTS = {
    "EGPU_CONTROL_MAGIC": abi.CONTROL_MAGIC,
    "EGPU_ABI_MAJOR": abi.ABI_MAJOR,
    "EGPU_ABI_MINOR": abi.ABI_MINOR,
    "EGPU_MAX_CARDS": abi.MAX_CARDS,
    "EGPU_MAX_PEERS": abi.MAX_PEERS,
    "EGPU_NAME_BYTES": abi.NAME_BYTES,
    "EGPU_CLASS_UNSET": abi.CLASS_UNSET,
    "EGPU_CLASS_LOW": abi.CLASS_LOW,
    "EGPU_CLASS_HIGH": abi.CLASS_HIGH,
    "EGPU_CORES_FREE": abi.CORES_FREE,
    "EGPU_CORES_HARD": abi.CORES_HARD,
    "EGPU_CORES_SOFT": abi.CORES_SOFT,
    "EGPU_CARD_SPILL": abi.CARD_SPILL,
    "EGPU_CARD_HIGH_HERE": abi.CARD_HIGH_HERE,
    "EGPU_USAGE_MAGIC": abi.USAGE_MAGIC,
    "EGPU_USAGE_SLOTS": abi.USAGE_SLOTS,
    "EGPU_USAGE_SHARED": abi.USAGE_SHARED,
    "EGPU_ACTIVITY_MAGIC": abi.ACTIVITY_MAGIC,
    "EGPU_ACTIVITY_CARDS": abi.MAX_CARDS,
    "EGPU_ACTIVITY_BYTES": abi.ACTIVITY_BYTES,
}
PATHS = {
    "EGPU_CONTROL_PATH": abi.CONTROL_PATH,
    "EGPU_SEED_PATH": abi.SEED_PATH,
    "EGPU_USAGE_PATH": abi.USAGE_PATH,
    "EGPU_ACTIVITY_PATH": abi.ACTIVITY_PATH,
    "EGPU_PEERS_FOLDER": abi.PEERS_FOLDER,
}
PARTS = {"egpu_activity": 0, "egpu_activity_card": abi.ACTIVITY_CARD_BYTES}
"""Mirrored from the start, not to the end; of those in arrays the size has to be right all the same."""
MIRRORS: dict[str, dict[str, type[ctypes.Structure]]] = {
    "control.h": {
        "egpu_control_card": abi.ControlCard,
        "egpu_control_peer": abi.ControlPeer,
        "egpu_control": abi.ControlPage,
    },
    "usage.h": {
        "egpu_usage_bytes": abi.UsageBytes,
        "egpu_usage_slot": abi.UsageSlot,
        "egpu_usage_shared": abi.UsageShared,
        "egpu_usage": abi.UsagePage,
    },
    "activity.h": {
        "egpu_activity_card": abi.ActivityCard,
        "egpu_activity": abi.ActivityPage,
    },
}


# --- layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", sorted(MIRRORS))
def test_the_mirror_has_the_layout_of_the_header(header: str, compiled: Callable[[str], str]) -> None:
    expected, lines = [], []
    for name, mirror in MIRRORS[header].items():
        if PARTS.get(name, 1):
            expected.append(f"{name} {ctypes.sizeof(mirror)}")
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field_name, *_ in mirror._fields_:
            if field_name == "rest":
                continue
            own = getattr(mirror, field_name)
            expected.append(f"{name}.{field_name} {own.offset} {own.size}")
            lines.append(f'printf("{name}.{field_name} %zu %zu\\n", offsetof(struct {name}, {field_name}), '
                         f"sizeof(((struct {name} *)0)->{field_name}));")  # fmt: skip
    body = "\n".join(lines)
    program = compiled(
        f'#include <stdio.h>\n#include "abi/{header}"\nint main(void) {{ {body} return 0; }}\n'
    )
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n") == [
        *expected,
        "",
    ]


def test_no_field_of_the_header_is_missing() -> None:
    for header, mirrors in MIRRORS.items():
        text = re.sub(r"/\*.*?\*/", "", (ABI / header).read_text(), flags=re.DOTALL)
        for name, mirror in mirrors.items():
            body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)
            assert body is not None
            declared = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body[1])
            mirrored = [entry[0] for entry in mirror._fields_ if entry[0] != "rest"]
            assert declared[: len(mirrored)] == mirrored, name
            assert name in PARTS or len(declared) == len(mirrored), name


def test_constants(compiled: Callable[[str], str]) -> None:
    lines = [f'printf("%lld\\n", (long long){name});' for name in CONSTANTS]
    lines += [f'printf("%s\\n", {name});' for name in PATHS]
    program = compiled(
        '#include <stdio.h>\n#include "abi/usage.h"\n#include "abi/activity.h"\nint main(void) {'
        + "\n".join(lines)
        + "return 0; }\n"
    )
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert said == [*(str(value) for value in CONSTANTS.values()), *PATHS.values()]
    assert abi.ControlPage.sequence.offset == abi.SEQUENCE_OFFSET
    assert abi.SEQUENCE_OFFSET % 8 == 0


# --- what a page says --------------------------------------------------------------------------------


def test_limits_of_each_card() -> None:
    one = grant("a", ("GPU-1", 1000, 25), ("GPU-0", 2000, 0), core_policy="soft", share_class="low")
    page = page_of([one], "a", facts={("a", "GPU-0"): CardFacts("00000000:1A:00.0", 77)})
    assert [limit.uuid for limit in page.limits] == ["GPU-1", "GPU-0"]
    first, second = page.limits
    assert (first.memory_bytes, first.physical_bytes) == (1000 << 20, 1000 << 20)
    assert (first.core_policy, first.cores_percent, first.weight) == (abi.CORES_SOFT, 25, 25)
    assert (second.core_policy, second.cores_percent, second.weight) == (abi.CORES_FREE, 100, 1)
    assert (second.pci_bus_id, second.context_bytes) == ("00000000:1A:00.0", 77)
    assert page.own_class == abi.CLASS_LOW
    assert page.peers == ()


def test_what_may_spill_is_told_how_much_lies_on_the_card() -> None:
    plain = grant("a", ("GPU-0", 2000, 0), ("GPU-1", 1000, 0))
    first, second = plain.shares
    parted = first.model_copy(update={"physical_mib": 500})
    page = page_of([dataclasses.replace(plain, shares=(parted, second))], "a")
    spills, stays = page.limits
    assert (spills.memory_bytes, spills.physical_bytes) == (2000 << 20, 500 << 20)
    assert spills.flags & abi.CARD_SPILL
    assert not stays.flags & abi.CARD_SPILL
    assert page.host_memory_mib == 1500


def test_peers_by_card_and_by_pod() -> None:
    low = grant("low", ("GPU-0", 1, 10), ("GPU-1", 1, 10), share_class="low", pod_uid="P")
    sibling = grant("sibling", ("GPU-2", 1, 10), share_class="low", pod_uid="P")
    beside = grant("beside", ("GPU-9", 1, 10), ("GPU-1", 1, 10), ("GPU-0", 1, 10))
    high = grant("high", ("GPU-2", 1, 10), share_class="high")
    far = grant("far", ("GPU-8", 1, 10))
    everyone = [low, sibling, beside, high, far]
    page = page_of(everyone, "low")
    assert [peer.name for peer in page.peers] == ["high", "beside"]
    held_by, shares = page.peers
    assert (held_by.peer_class, held_by.cards, held_by.pod_cards) == (abi.CLASS_HIGH, 0, 0b1)
    assert (shares.cards, shares.pod_cards, shares.card_of) == (0b11, 0b110, (2, 1))
    assert not any(limit.flags & abi.CARD_HIGH_HERE for limit in page.limits)
    on_high = page_of(everyone, "sibling")
    assert on_high.limits[0].flags & abi.CARD_HIGH_HERE
    assert [peer.name for peer in on_high.peers] == ["high", "beside"]
    assert page_of(everyone, "far").peers == ()


def test_containers_of_one_pod_on_one_card_are_peers() -> None:
    pair = [grant("a", ("GPU-0", 1, 10), pod_uid="P"), grant("b", ("GPU-0", 1, 10), pod_uid="P")]
    assert [peer.name for peer in page_of(pair, "a").peers] == ["b"]
    assert page_of(pair, "a", paged=frozenset({"a"})).peers == ()


def test_who_has_to_hear_of_a_change() -> None:
    low = grant("low", ("GPU-0", 1, 10), pod_uid="P")
    sibling = grant("sibling", ("GPU-1", 1, 10), pod_uid="P")
    other, far = grant("other", ("GPU-0", 1, 10)), grant("far", ("GPU-5", 1, 1))
    came = grant("came", ("GPU-1", 1, 10), share_class="high")
    assert neighbours([low, sibling, other, far, came], [came]) == {"low", "sibling", "came"}
    assert neighbours([low, sibling, other, far], [came]) == {"low", "sibling"}


def test_too_many_peers_keep_the_high_ones() -> None:
    many = [grant(f"n{n:03}", ("GPU-0", 1, 0), share_class="low") for n in range(150)]
    high = grant("z-high", ("GPU-0", 1, 0), share_class="high")
    page = page_of([*many, high], "n000")
    assert len(page.peers) == abi.MAX_PEERS
    assert page.peers[0].name == "z-high"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ([(f"GPU-{n}", 1, 0) for n in range(17)], "17 cards for one container, the library knows 16"),
        ([("G" * 48, 1, 0)], "more than 47 bytes"),
    ],
)
def test_what_does_not_fit_a_page_is_refused(changed: list[tuple[str, int, int]], text: str) -> None:
    with pytest.raises(ControlError, match=text):
        page_of([grant("a", *changed)], "a")


def test_pages_are_read_back() -> None:
    everyone = [
        grant("a", ("GPU-1", 10, 5), ("GPU-0", 20, 0)),
        grant("b", ("GPU-0", 1, 1), share_class="high"),
    ]
    beyond = Beyond((0, 6 << 20), ((5 << 32 | 71, 1, 4 << 20),))
    page = dataclasses.replace(page_of(everyone, "a"), suspended=True, host_memory_mib=7, beyond=beyond)
    data = encode(page, sequence=4, generation=9)
    assert len(data) == abi.CONTROL_BYTES
    assert decode(data) == page
    assert decode(data[:-1]) is None
    assert decode(b"\0" * len(data)) is None
    assert decode(data[:4] + b"\x02" + data[5:]) is None
    odd = abi.ControlPage.from_buffer_copy(data)
    odd.card_count = abi.MAX_CARDS + 1
    assert decode(bytes(odd)) is None


def test_only_who_is_suspended_waits() -> None:
    everyone = [grant("a", ("GPU-0", 1, 10)), grant("b", ("GPU-0", 1, 10))]
    assert [page_of(everyone, name, suspended=frozenset({"b"})).suspended for name in ("a", "b")] == [
        False, True,
    ]  # fmt: skip


def test_of_peers_of_one_class_those_on_the_containers_own_cards_come_first() -> None:
    everyone = [
        grant("own", ("GPU-0", 1, 10), pod_uid="P"),
        grant("sibling", ("GPU-1", 1, 10), pod_uid="P"),
        grant("a-beside-the-sibling", ("GPU-1", 1, 10)),
        grant("z-beside", ("GPU-0", 1, 10)),
    ]
    assert [peer.name for peer in page_of(everyone, "own").peers] == ["z-beside", "a-beside-the-sibling"]
