"""Attempts by what a program wishes for: alternatives, needs, slices of cards that are cut."""

import json
from typing import Any, Final

from vc_egpu.kube.resources import PODS, VOLCANO_JOBS

from attacks.requests import DOMAIN, SHARE, Attack, Json, Try, container, create, job, pod, tries

_ANY_MODEL: Final = {"vgpu": 1}
_NEEDS: Final = f"{DOMAIN}/needs"
_SLOW: Final = (
    ("torch" * 103, "the limit is 512"),
    (",".join(["cuda>=1"] * 17), "has 17 parts"),
    (",".join(f"torch!={number}.0" for number in range(16)), "more than 64 combinations"),
    (f"cuda=={'9' * 490}", "cuda=="),
    (f"{'a' * 500}==1", "is unknown"),
)
"""Texts that would take long if nothing bounded them, and a part of what is said."""


def _hidden(says: str, **alternative: Any) -> Try:
    """A Job whose one alternative says more than it may."""
    whole = {"name": "a", "model": "h20", "memory": 1024, **alternative}
    template = {"spec": {"containers": [container(limits=_ANY_MODEL)], "restartPolicy": "Never"}}
    body = job(template=template)
    body["metadata"]["annotations"] = {f"{DOMAIN}/alternatives": json.dumps([whole])}
    return create(VOLCANO_JOBS, body, "W", says=says)


def _sliced(name: str, limits: Json) -> Json:
    return pod(container(limits=limits), annotations={f"{DOMAIN}/slice": name})


ATTACKS: Final = (
    Attack(
        41,
        "rights, a class or an image for a container that is not there, hidden in an alternative",
        (
            _hidden("priorityClassName", priorityClassName="system-node-critical"),
            _hidden("securityContext", securityContext={"main": {"privileged": True}}),
            _hidden("annotations", annotations={f"{DOMAIN}/priority": "high"}),
            _hidden("no container 'other'", image={"other": "none.example/none:1"}),
            _hidden("less than or equal to 64", count=4096),
        ),
    ),
    Attack(
        42,
        "`needs` that are slow to compile",
        tuple(create(PODS, pod(annotations={_NEEDS: text}), "W", says=says) for text, says in _SLOW),
    ),
    Attack(
        43,
        "a slice of another model, a MIG spelling past the cap",
        (
            *tries([_sliced("3g.40gb", SHARE)], "W", says="slice"),
            *tries([_sliced("x" * 300, SHARE)], "W"),
            *tries([pod(container(limits={"nvidia.com/mig-3g.40gb": 1}))], "Q", says="exceeded quota"),
            *tries([pod(container(limits={**SHARE, "nvidia.com/mig-3g.40gb": 1}))], "WQ"),
        ),
    ),
)
