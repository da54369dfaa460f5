"""The examples on Volcano, which opens queues before it takes Jobs, and may hold PodGroups back."""

from rigs.player import TIMEOUT_S, Player, expectations
from stack import verify
from stack.install import Stack
from stack.kit import Json, Kit, condition
from vc_egpu.kube.resources import POD_GROUPS, QUEUES
from vc_egpu.volcano.words.names import CONDITION_ADMITTED

from volcano.conf import ConfName


class VolcanoPlayer(Player):
    """A story on Volcano."""

    def _act(self, step: Json) -> None:
        super()._act(step)
        if step["step"] == 0:
            queues_open(self.stack.kit)


class StockPlayer(VolcanoPlayer):
    """A story in which the pods of a gang that waits need not be there: under the stock configuration its
    PodGroup may stay pending, and is judged by its Job's template."""

    def check_unbound(self, of: Json) -> None:
        def waiting(pods: dict[str, Json]) -> bool:
            return not any(pod["spec"].get("nodeName") for pod in pods.values())

        self._until(f"none of {of} has a node", of, waiting)

    def check_waits(self, of: Json) -> None:
        if "job" not in of:
            super().check_waits(of)
            return

        def check(groups: dict[str, Json]) -> str | None:
            for group in groups.values():
                owners = group["metadata"].get("ownerReferences") or ()
                verdict = condition(group, CONDITION_ADMITTED)
                ours = any(owner["name"] == of["job"] for owner in owners)
                if ours and verdict and (verdict["status"], verdict["reason"]) == ("False", of["reason"]):
                    return str(verdict["message"])
            return None

        self.stack.kit.until(
            f"{self.story}: {of['job']} waits with {of['reason']}",
            POD_GROUPS,
            check,
            namespace=self.namespace,
            timeout_s=TIMEOUT_S,
        )


def play(stack: Stack, conf: ConfName, story: str) -> None:
    """An example, from its objects to what must be seen, and what must hold at its end."""
    kind = VolcanoPlayer if conf == "own" else StockPlayer
    player = kind(stack, story, expectations(story))
    try:
        player.play()
        stack.check_invariants()
        verify.check_containers(stack.cluster, stack.kit, player.namespace)
    finally:
        player.clean()


def queues_open(kit: Kit) -> None:
    """Volcano's webhook refuses Jobs until its controller has opened their queue."""
    kit.until(
        "all queues are open",
        QUEUES,
        lambda queues: all((q.get("status") or {}).get("state") == "Open" for q in queues.values()),
    )
