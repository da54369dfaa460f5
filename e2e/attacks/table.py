"""All rows: those that are tried here, and those that are not, each with its reason."""

from typing import Final

from attacks import pods, rights, wishes
from attacks.requests import Attack

_NODES: Final = "`e2e/test_attacks_on_nodes.py`"

ELSEWHERE: Final = (
    Attack(5, "`NVIDIA_VISIBLE_DEVICES=all` in a container with a share", state="elsewhere", walls="A",
           note="`e2e/test_isolation_programs.py`: the container reads `void`"),
    Attack(6, "Ascend's variables for all cards or slices", state="elsewhere", walls="A",
           note="`e2e/test_other_vendors.py`: the container reads `void` and has its own card alone"),
    Attack(7, "an annotation `cdi.k8s.io/x: nvidia.com/gpu=all`", state="elsewhere", walls="K", away=True,
           note=f"{_NODES}: the runtime takes devices from the kubelet alone"),
    Attack(27, "`mknod` of another card's node", state="elsewhere", walls="A", away=True,
           note=f"{_NODES}: root of the container makes it and cannot open it"),
    Attack(28, "past the library: no preload, a static program, direct calls", state="elsewhere", walls="A",
           note="`e2e/test_isolation_programs.py`: told within 5 s, and no wall against direct calls"),
    Attack(29, "another container's pages rewritten", state="elsewhere", walls="A",
           note="`e2e/test_isolation.py`: the container cannot write them"),
    Attack(31, "a Command in its own namespace with the UID of another's Job", state="elsewhere", walls="=",
           note="`tests/unit/jobs/test_hostile.py`: controllers look for the Job in the Command's namespace"),
    Attack(37, "calls to API server, metadata, kubelet, agents' metrics", state="elsewhere", walls="N",
           away=True, note="`e2e/test_network_policies.py`, on a network that enforces them"),
    Attack(44, "a finalizer that keeps cards", state="elsewhere", walls="AC", away=True,
           note=f"{_NODES}: others have them once its containers have ended"),
    Attack(48, "all of these with the webhook away", state="elsewhere", walls="PF",
           note="the column on the right"),
)  # fmt: skip
_TRIED: Final = (*pods.ATTACKS, *rights.ATTACKS, *wishes.ATTACKS)
ATTACKS: Final = tuple(sorted((*_TRIED, *ELSEWHERE), key=lambda attack: attack.row))
TRIED: Final = tuple(attack for attack in ATTACKS if attack.state == "tried")
