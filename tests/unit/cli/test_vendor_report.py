"""`kubectl egpu doctor --vendor-report`: what is sent has no names in it."""

from unit.cli import documents as docs
from vc_egpu.cli.doctor import vendor_report
from vc_egpu.cli.live import forms
from vc_egpu.volcano.words.annotations import NodeSlice


def test_cards_and_versions_are_told_and_names_are_not() -> None:
    card = docs.card(
        "DIE-1",
        product="Ascend910B3",
        reason="card DIE-1 is ill",
        held=("uid-secret",),
        slices=(NodeSlice(id="100", template="vir05_1c_16g", owner="uid-secret"),),
    )
    agent = {"metadata": {"name": "agent-x"}, "spec": {"nodeName": "node-secret"}}
    nodes = [docs.node("node-secret", card, driver="25.2.0"), docs.node("empty")]
    found = vendor_report.report(nodes, [agent])
    (node,) = found.nodes
    assert (node.driver, node.cards[0]["product"], node.cards[0]["reason"]) == (
        "25.2.0",
        "Ascend910B3",
        "card <card> is ill",
    )
    assert node.cards[0]["slices"] == [{"template": "vir05_1c_16g", "start": -1, "ours": True}]
    assert found.commands == (
        "kubectl -n vc-egpu-system exec agent-x -- python -m vc_egpu_node.vendors.report --vendor=nvidia",
    )
    sent = forms.as_json(found.nodes).decode()
    assert "secret" not in sent and "DIE-1" not in sent
    assert "1 cards of nvidia, driver 25.2.0" in vendor_report.shown(found).plain


def test_no_cards_at_all() -> None:
    assert vendor_report.shown(vendor_report.report([], [])).plain == "no node has cards"
