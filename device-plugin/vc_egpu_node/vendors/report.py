"""What an owner of real cards sends: ``python -m vc_egpu_node.vendors.report --vendor ascend``.

It prints what the vendor's library says, as JSON: versions, cards, samples, slices, refusals, sizes of the
structures. It changes nothing on the node, and names no pods.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from vc_egpu_node.settings.config import Settings, parse_flags
from vc_egpu_node.vendors.ascend import dcmi
from vc_egpu_node.vendors.base import CardReading, UntoldError, Vendor
from vc_egpu_node.vendors.hygon import driver
from vc_egpu_node.vendors.registry import BUNDLES
from vc_egpu_node.vendors.slices import SliceError

SIZES: Final[Mapping[str, Mapping[str, int]]] = {"ascend": dcmi.SIZES, "hygon": driver.SIZES}


def report(settings: Settings) -> dict[str, Any]:
    """One entry for each vendor that the settings name."""
    vendors = {}
    for name in settings.vendors:
        vendor = BUNDLES[name](settings)
        try:
            vendors[name] = _of(vendor) | {"structBytes": dict(SIZES.get(name, {}))}
        finally:
            vendor.readings.close()
    return {"version": 1, "vendors": vendors}


def _of(vendor: Vendor) -> dict[str, Any]:
    reading = vendor.readings.scan()
    unusable = vendor.edits.unusable(reading.cards, reading.driver_version)
    faults = vendor.readings.faults()
    return {
        "sign": None if vendor.sign is None else [str(vendor.sign), vendor.sign.exists()],
        "versions": dict(reading.versions),
        "problem": reading.problem,
        "cards": [
            _card(vendor, card)
            | {"fault": faults.get(card.uuid, ""), "unusable": unusable.get(card.uuid, "")}
            for card in reading.cards
        ],
    }


def _card(vendor: Vendor, card: CardReading) -> dict[str, Any]:
    told = asdict(card) | {"abilities": sorted(card.abilities)}
    sample = asdict(vendor.readings.sample(card.uuid))
    told["sample"] = {key: value for key, value in sample.items() if value is not None}
    try:
        told["processes"] = len(vendor.readings.processes(card.uuid))
    except UntoldError as error:
        told["processes"] = str(error)
    try:
        lying = vendor.slicer.slices(card.uuid) if vendor.slicer is not None else ()
        told["slices"] = [asdict(one) for one in lying]
    except SliceError as error:
        told["slices"] = f"{error.why}: {error}"
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report."""
    settings = parse_flags(sys.argv[1:] if arguments is None else arguments)
    sys.stdout.write(json.dumps(report(settings), indent=2, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
