"""The attempts are complete, name walls that there are, and stand on the page as they are."""

import pytest
from attacks.page import PAGE, written
from attacks.requests import Attack
from attacks.table import ATTACKS, TRIED
from attacks.walls import NAMES, wall_of
from vc_egpu.kube.wire.errors import Conflict, Forbidden, Invalid, KubeError, Unavailable

ROWS = 48


def test_each_row_is_there_once() -> None:
    assert [attack.row for attack in ATTACKS] == list(range(1, ROWS + 1))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"row-{attack.row}")
def test_a_row_is_tried_or_says_why_not(attack: Attack) -> None:
    assert bool(attack.tries) == (attack.state == "tried")
    assert bool(attack.note) == (attack.state != "tried")
    assert attack.letters
    assert set(attack.letters + attack.letters_without_webhook) <= set(NAMES)


def test_no_wall_is_the_webhook_while_it_is_away() -> None:
    assert not [attack.row for attack in TRIED if "W" in attack.letters_without_webhook]


def test_the_page_has_the_table() -> None:
    """Run `python -m attacks.page`."""
    assert written(PAGE.read_text()) == PAGE.read_text()


@pytest.mark.parametrize(
    ("error", "letter"),
    [
        (Forbidden('admission webhook "pods.egpu.volcano.sh" denied the request: no', status=403), "W"),
        (
            KubeError('Internal error: failed calling webhook "pods.egpu.volcano.sh"', status=500),
            "F",
        ),
        (Forbidden("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no", status=403), "P"),
        (Forbidden('pods "a" is forbidden: violates PodSecurity "baseline:v1.30": x', status=403), "S"),
        (Forbidden('pods "a" is forbidden: exceeded quota: tenant', status=403), "Q"),
        (Forbidden('pods is forbidden: User "a" cannot list resource "pods"', status=403), "R"),
        (Invalid("Pod is invalid", status=422), "K"),
        (Conflict("object was modified", status=409), "K"),
        (Unavailable("etcd is away", status=503), "?"),
    ],
)
def test_a_refusal_tells_its_wall(error: KubeError, letter: str) -> None:
    assert wall_of(error) == letter
