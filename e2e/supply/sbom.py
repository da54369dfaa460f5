"""The bill of materials as CycloneDX 1.6 writes it. Pure: the same packages give the same bytes."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from supply.licences import expression
from supply.lock import Package

Json = dict[str, Any]
_NAMESPACE: Final = uuid.UUID("6f1c8d5e-7d55-4e3c-9a43-1f3d5f8a6a10")
"""So that the serial number follows from the content."""


def document(name: str, version: str, packages: Sequence[Package]) -> Json:
    """All packages as components of the product, by name."""
    components = [_component(one) for one in sorted(packages, key=lambda one: one.locked.name)]
    product = {"type": "application", "bom-ref": name, "name": name, "version": version}
    digest = hashlib.sha256(json.dumps([product, components], sort_keys=True).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _component(package: Package) -> Json:
    locked = package.locked
    reference = f"pkg:pypi/{locked.name.lower().replace('_', '-')}@{locked.version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": locked.name,
        "version": locked.version,
        "purl": reference,
        "licenses": [_licence(package.licence)],
        # One of these is the file that was installed: which one depends on the machine.
        "externalReferences": [
            {
                "type": "distribution",
                "url": reference,
                "hashes": [{"alg": "SHA-256", "content": one} for one in locked.hashes],
            }
        ],
        "properties": [{"name": "files", "value": str(len(package.files))}],
    }


def _licence(text: str) -> Json:
    meant = expression(text)
    return {"expression": meant} if meant else {"license": {"name": "none named"}}


def text(found: Json) -> str:
    """As it is written to a file."""
    return json.dumps(found, indent=2, sort_keys=True) + "\n"
