"""The bill of materials as CycloneDX 1.6 writes it. Pure: the same packages give the same bytes."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from supply import debian
from supply.licences import expression
from supply.lock import Package

Json = dict[str, Any]
_NAMESPACE: Final = uuid.UUID("6f1c8d5e-7d55-4e3c-9a43-1f3d5f8a6a10")
"""So that the serial number follows from the content."""
_DISTRIBUTION: Final = "debian-12"


@dataclass(frozen=True, slots=True)
class Component:
    """One package, whoever packed it."""

    name: str
    version: str
    reference: str
    """Its package URL."""
    licence: str
    """As SPDX writes it, or as the package does; empty where it says nothing."""
    hashes: tuple[str, ...] = ()
    """SHA-256 of each file that may be installed."""
    files: tuple[str, ...] = ()
    """Paths in the image, or below site-packages."""


def of_python(package: Package) -> Component:
    """A package of the lock file."""
    locked = package.locked
    reference = f"pkg:pypi/{locked.name.lower().replace('_', '-')}@{locked.version}"
    return Component(
        locked.name, locked.version, reference, expression(package.licence), locked.hashes, package.files
    )


def of_debian(package: debian.Package) -> Component:
    """A package of Debian."""
    version = quote(package.version, safe="")
    about = f"arch={package.architecture}&distro={_DISTRIBUTION}"
    reference = f"pkg:deb/debian/{quote(package.name, safe='')}@{version}?{about}"
    return Component(package.name, package.version, reference, package.licence)


def document(
    name: str, version: str, components: Sequence[Component], *, own: Sequence[str] = (), machine: str = ""
) -> Json:
    """All packages as components of the product, by their references. ``own``: files of the product itself;
    ``machine``: what the image is for, in the words of OCI."""
    listed = [_component(one) for one in sorted(components, key=lambda one: one.reference)]
    product: Json = {"type": "application", "bom-ref": name, "name": name, "version": version}
    product["licenses"] = [{"expression": "Apache-2.0"}]
    if own:
        product["evidence"] = _found(own)
    if machine:
        product["properties"] = [{"name": "architecture", "value": machine}]
    digest = hashlib.sha256(json.dumps([product, listed], sort_keys=True).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {"component": product},
        "components": listed,
        "dependencies": [{"ref": name, "dependsOn": [one["bom-ref"] for one in listed]}],
    }


def _component(component: Component) -> Json:
    found: Json = {
        "type": "library",
        "bom-ref": component.reference,
        "name": component.name,
        "version": component.version,
        "purl": component.reference,
        "licenses": [_licence(component.licence)],
    }
    if component.hashes:
        # One of these is the file that was installed: which one depends on the machine.
        hashes = [{"alg": "SHA-256", "content": one} for one in component.hashes]
        source = {"type": "distribution", "url": component.reference, "hashes": hashes}
        found["externalReferences"] = [source]
    if component.files:
        found["evidence"] = _found(component.files)
    return found


def _found(files: Sequence[str]) -> Json:
    return {"occurrences": [{"location": path} for path in sorted(files)]}


def _licence(text: str) -> Json:
    return {"expression": text} if text else {"license": {"name": "none named"}}


def text(found: Json) -> str:
    """As it is written to a file."""
    return json.dumps(found, indent=2, sort_keys=True) + "\n"
