"""Regular expressions: each module that has one is named here, with what bounds the texts that it sees.

An expression may take a time that grows with the square of the text, and holds all threads meanwhile. So a
text that a stranger writes has a length before it meets one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from house.floors import CONTROL_PLANE, NODE

BOUNDED_BY = {
    "vc_egpu/jobs/rules/times.py": "LONGEST_DURATION, asked before the scan",
    "vc_egpu/volcano/codec/plans.py": "anchored, of at most 37 characters",
    "vc_egpu/logs.py": "templates of our own messages",
    "vc_egpu/traces/facts.py": "4,096 characters, cut before the search",
    "vc_egpu/volcano/words/quantity.py": "64 characters, asked before the match",
    "vc_egpu/cli/doctor/checkup.py": "the version of the cluster, which its operator chose",
    "vc_egpu/cli/live/events.py": "times of the API server",
    "vc_egpu/cli/tenant/flags.py": "what its own user types",
    "vc_egpu/tenants/document.py": "one class of characters, an operator's document",
    "vc_egpu/cli/models/table_text.py": "the start of a line, an operator's document",
    "vc_egpu/volcano/words/model_table.py": "one class of characters",
    "vc_egpu/cli/views/history.py": "names of objects",
    "vc_egpu/cli/views/owners.py": "names of objects",
    "vc_egpu/cli/commands.py": "what its own user types",
    "vc_egpu/cli/parser.py": "what its own user types",
    "vc_egpu/kube/wire/reading.py": "one pass over JSON that the API server wrote",
    "vc_egpu_node/vendors/hygon/slicer.py": "the node's own files and names of templates",
    "vc_egpu_node/vendors/nvidia/toolkit.py": "the node's own files",
    "vc_egpu_node/vendors/nvidia/mig/instances.py": "the driver's own file",
    "vc_egpu_node/containers/runtime.py": "the kubelet's word for the runtime",
    "vc_egpu_node/containers/processes.py": "paths of cgroups, which the kernel bounds",
    "vc_egpu_node/containers/cgroups.py": "paths of cgroups, which the kernel bounds",
    "vc_egpu_node/api/node.py": "one class of characters, an operator's annotation",
    "vc_egpu_node/cards/inventory.py": "what the driver says of its cards",
    "vc_egpu_node/suspension/verdict.py": "anchored, the driver's version",
}


def _uses(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re":
            yield node


def test_each_module_with_a_regular_expression_says_what_bounds_its_text() -> None:
    found = {
        str(path.relative_to(root))
        for root in (CONTROL_PLANE, NODE)
        for path in Path(root).glob("vc_egpu*/**/*.py")
        if any(_uses(ast.parse(path.read_text())))
    }
    assert found == set(BOUNDED_BY)
