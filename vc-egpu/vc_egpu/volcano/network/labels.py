"""The domains of a node by its labels: the operator names the labels, the nearest level first. Pure."""

from collections.abc import Mapping, Sequence

from vc_egpu.core.topology.network import Domain


def domains_by_labels(labels: Mapping[str, str], levels: Sequence[str]) -> tuple[Domain, ...]:
    """The domains that a node is in. ``levels``: label keys, the nearest level first, which is tier 1.

    Racks of two blocks may have one name, so that each name has those of the levels above before it. A node
    without the label of some level is in no domain there.
    """
    above, found = "", list[Domain]()
    for number, key in reversed([*enumerate(levels, 1)]):
        value = labels.get(key, "")
        if value:
            above += f"{', ' if above else ''}{key.rpartition('/')[2]} {value}"
            found.append(Domain(number, above, key))
    return tuple(reversed(found))
