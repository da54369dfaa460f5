"""The part of the doctor that looks at HyperNodes. Pure: facts in, findings out."""

from collections.abc import Iterable

from vc_egpu.cli.doctor.facts import Facts
from vc_egpu.cli.doctor.findings import Finding, ok, warn
from vc_egpu.core.model.words import few
from vc_egpu.volcano.network.hypernodes import HyperNode, Tree, read_or_why

_WHAT = "network"
_HINT = "what is left out is in no domain; docs/decisions.md, 'Levels of the network'"


def network_findings(facts: Facts) -> Iterable[Finding]:
    """HyperNodes of which something is wrong, and nodes that they name and that are not there."""
    if facts.hypernodes.missing:
        yield warn(_WHAT, facts.hypernodes.missing)
    found, wrong = [], False
    for document in facts.hypernodes.items:
        one = read_or_why(document)
        if isinstance(one, HyperNode):
            found.append(one)
        else:
            wrong = True
            yield warn(_WHAT, f"HyperNode {document['metadata'].get('name')} is left out: {one}", _HINT)
    tree = Tree(found)
    for name, problems in sorted(tree.problems.items()):
        wrong = True
        yield warn(_WHAT, f"HyperNode {name}: {'; '.join(problems)}", _HINT)
    known = dict.fromkeys(str(node["metadata"]["name"]) for node in facts.nodes.items)
    for name, nodes in sorted(tree.unknown_nodes(known).items()) if not facts.nodes.missing else ():
        wrong = True
        yield warn(_WHAT, f"HyperNode {name} names nodes that are not there: {few(nodes)}")
    if found and not wrong:
        yield ok(_WHAT, f"{len(found)} HyperNodes say which nodes are near each other")
