"""The language of the scenario files: commands in, what the core says out.

A file opens with a paragraph that tells its story; then blocks of commands, ``----`` and the output follow.
After every command the invariants are checked. The commands::

    node n1 h20=4 cpu=64 memory=256Gi       cards by model; also mode=native, sharers=2, ratio=1.5,
                                            taint=key=value:NoSchedule, label=zone=a, slots=12,
                                            memory-ratio=2, host=64Gi, for=low (the class of both ratios),
                                            pods=110, driver=550.54, cuda=12.4, capability=8.0,
                                            isolation=driver,
                                            in=r1;b1 (its rack, its block)
    ill n1/0 | well n1/0                    a card takes nothing new, or recovers
    cordon n1 | uncordon n1 | drop n1       the node
    silent n1 | back n1                     its kubelet falls silent: who is there stays; or is back
    out-of-service n1                       an operator says that nothing runs on a silent node any more
    queue q vgpu-h20=6 parent=org           caps by the resource's short name; also deserved.vgpu-h20=4,
                                            guarantee.vgpu-h20=2, priority=5, weight=3, closed, fifo,
                                            keeps (it is not reclaimable), no-preemption (not within
                                            its cap),
                                            min-runtime=600 (seconds)
    submit train queue=q class=low members=4 h20=1 memory=60Gi cores=100 cpu=4
                                            a gang; also min=2, single, value=1000, gate=foo.io/bar, whole,
                                            restartable (a user says so of one that is not low),
                                            native, spill, swap (its card in turns),
                                            limit=8Gi (the container's own memory limit),
                                            ram=1Gi, node=label:value, tolerate=key, port=80,
                                            card-policy=, node-policy=, use-cards=n1/0;n1/1, avoid-cards=,
                                            any=h20;t4 (one of these models, cards=2 of it; memory=50% is
                                            of the chosen model), mixes (not all members the same),
                                            soonest (none can start: the one that will be the first to),
                                            needs=driver>=550 (of the node's software),
                                            presumes=cuda>=12.4 (read off its image),
                                            runtime=600 (seconds within which its pods end),
                                            tier=1 (all in one domain of this tier of the network),
                                            parts=4 (subgroups of so many members), part-tier=1 (each in one
                                            domain of this tier),
                                            is=web (a label), apart-from=web;db@zone (pods that it avoids on
                                            its node, or in its zone), near=web@zone (pods that it needs),
                                            spread=web:2 or web@zone:2 (evenly with these, maxSkew 2),
                                            template (members known before their pods are there),
                                            owner=Deployment has=key:value earlier=short (for rules of
                                            placement),
                                            task=name:count:h20=1,memory=8Gi,cores=10,cpu=2, min-task=name:1
    rule calm when.class=low nodes=spread   one more rule of placement, below those that are there; also
                                            when.labels=key:value, when.cards=2-8, when.allocation=80+,
                                            when.hours=22-6, cards=topology
    decide                                  what the core says; changes nothing
    apply                                   do what the last decide said
    plan-only                               write its plans on the gangs, and no more
    leave                                   pods that terminate are gone now, and orders carried out
    suspendable g h                         their pods can be suspended (not-suspendable: cannot any more)
    pause g | unpause g                     a user wishes it to be suspended, or not any more
    broken g                                once suspended it cannot be brought back
    heard-early g                           nodes say that its pods leave, before the orders on them are seen
    agents                                  orders to suspend and to resume are carried out
    settle                                  decide, apply and leave until nothing changes
    finish g | fail g/w/0 | delete g/w/0    a gang succeeds; a pod fails or is deleted, and comes back gated
                                            (fail g/w/0 gone: it does not; fail g/w/0 told: somebody told
                                            it to go, and nobody comes for it)
    grow g 2                                the controller makes two more members like the first
    class g low                             what it makes from now on is of that class
    protect g                               a PodDisruptionBudget allows no disruption of it
    bare g                                  nobody would make its pods anew
    ungate g                                whoever owned the other gates of its pods lifted them
    back-off g 30                           it was rolled back, and waits so many seconds
    refused g 2 n1 costly                   the scheduler refused its plan: its pods come back gated, next at
                                            most 2 of them go to a node, n1 is left out, and others had gone
                                            for it
    setting reclaim-by-weight | setting no-reclaim | setting moves
                                            the controller runs with this option (also moves-off, moves-empty,
                                            high-apart)
    tick 30                                 seconds pass
    cards | pods g                          who is where
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scenario import asks, told
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    Gang,
    Mode,
    Node,
    NodeName,
    Pod,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
    SuspensionState,
    Taint,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Moving
from vc_egpu.core.profiles.table import Table
from vc_egpu.core.topology.network import Bound, Domain
from vc_egpu.sim.world import Tasks, World
from vc_egpu.volcano.profiles.table import Row

_PREFIX = "volcano.sh/"
_SWITCHES = {"closed", "keeps", "no-preemption", "fifo"}
_CLASSES = {"high": ShareClass.HIGH, "low": ShareClass.LOW, "unset": ShareClass.UNSET}


def _network(words: str) -> tuple[Domain, ...]:
    """``r1;b1``: its domain of tier 1, of tier 2 and so on; an empty word: none of that tier."""
    return tuple(Domain(tier, word) for tier, word in enumerate(words.split(";"), 1) if word)


def _bound(options: Mapping[str, str], name: str) -> Bound | None:
    return Bound(int(options[name])) if name in options else None


class ScriptError(Exception):
    """A scenario says something that is not in the language."""


class Script:
    """One scenario's world, and what it printed since the last block."""

    def __init__(self) -> None:
        self.world = World(models=asks.MODELS)
        self._submitted = 0
        self._plan: Plan | None = None
        self._out: list[str] = []

    def run(self, lines: list[str]) -> str:
        """Execute a block of commands; the output, one string."""
        self._out = []
        for line in lines:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            command: Callable[[list[str]], None] | None = getattr(
                self, f"_do_{words[0].replace('-', '_')}", None
            )
            if command is None:
                raise ScriptError(f"unknown command: {line}")
            before = self.world.snapshot()
            command(words[1:])
            self.world.check(before)
        return "\n".join(self._out)

    # --- nodes -----------------------------------------------------------------------------------

    def _do_node(self, words: list[str]) -> None:
        options = asks.options(words[1:])
        cards: list[Card] = []
        for model, memory in asks.MODELS.items():
            for _ in range(int(options.get(model, "0"))):
                uuid = CardId(f"{words[0]}/{len(cards)}")
                cards.append(Card(uuid, len(cards), model, memory))
        taints = []
        if "taint" in options:
            key, _, rest = options["taint"].partition("=")
            value, _, effect = rest.partition(":")
            taints.append(Taint(key, value, effect))
        key, _, value = options.get("label", "zone=a").partition("=")
        slots = (
            {f"{_PREFIX}vgpu-{card.model}": int(options["slots"]) for card in cards}
            if "slots" in options
            else {}
        )
        self.world.put_node(
            Node(
                name=NodeName(words[0]),
                allocatable=Resources(
                    cpu_milli=int(float(options.get("cpu", "64")) * 1000),
                    memory_bytes=asks.mib(options.get("memory", "512Gi")) << 20,
                    pods=int(options.get("pods", "110")),
                ),
                labels={key: value},
                environment=tuple(
                    (fact, (options[fact],))
                    for fact in ("capability", "cuda", "driver", "isolation")
                    if fact in options
                ),
                taints=tuple(taints),
                mode=Mode(options.get("mode", "shared")),
                cards=tuple(cards),
                core_ratio=float(options.get("ratio", "1")),
                memory_ratio=float(options.get("memory-ratio", "1")),
                ratio_class=_CLASSES[options["for"]] if "for" in options else None,
                host_memory_mib=asks.mib(options.get("host", "0")),
                max_sharers=int(options.get("sharers", "100")),
                slots=slots,
                network=_network(options.get("in", "")),
            )
        )

    def _node(self, name: str) -> Node:
        return self.world.snapshot().nodes[NodeName(name)]

    def _do_cordon(self, words: list[str]) -> None:
        self.world.put_node(replace(self._node(words[0]), unschedulable=True))

    def _do_uncordon(self, words: list[str]) -> None:
        self.world.put_node(replace(self._node(words[0]), unschedulable=False))

    def _do_silent(self, words: list[str]) -> None:
        self.world.put_node(replace(self._node(words[0]), ready=False))

    def _do_back(self, words: list[str]) -> None:
        self.world.put_node(replace(self._node(words[0]), ready=True, lost=False))

    def _do_out_of_service(self, words: list[str]) -> None:
        self.world.put_node(replace(self._node(words[0]), lost=True))

    def _do_drop(self, words: list[str]) -> None:
        self.world.remove_node(NodeName(words[0]))

    def _do_ill(self, words: list[str], *, usable: bool = False) -> None:
        node = self._node(words[0].partition("/")[0])
        cards = tuple(replace(c, usable=usable) if c.uuid == words[0] else c for c in node.cards)
        self.world.put_node(replace(node, cards=cards))

    def _do_well(self, words: list[str]) -> None:
        self._do_ill(words, usable=True)

    # --- queues and gangs ------------------------------------------------------------------------

    def _do_queue(self, words: list[str]) -> None:
        options = asks.options([word for word in words[1:] if word not in _SWITCHES])
        amounts: dict[str, dict[str, int]] = {}
        for key, text in options.items():
            kind, _, name = key.rpartition(".")
            if key in {"parent", "priority", "weight", "min-runtime"}:
                continue
            resource = _PREFIX + name if "gpu-" in name else name
            amounts.setdefault(kind or "capability", {})[resource] = asks.mib(text)
        self.world.put_queue(
            Queue(
                name=QueueName(words[0]),
                parent=QueueName(options["parent"]) if "parent" in options else None,
                open="closed" not in words,
                reclaimable="keeps" not in words,
                preempts_within="no-preemption" not in words,
                fifo="fifo" in words,
                priority=int(options.get("priority", "0")),
                weight=int(options.get("weight", "1")),
                capability=amounts.get("capability", {}),
                deserved=amounts.get("deserved", {}),
                guarantee=amounts.get("guarantee", {}),
                min_runtime_s=float(options["min-runtime"]) if "min-runtime" in options else None,
            )
        )

    def _do_submit(self, words: list[str]) -> None:
        flags = {word for word in words[1:] if "=" not in word}
        options = asks.options(
            [word for word in words[1:] if "=" in word and not word.startswith(("task=", "min-task="))]
        )
        tasks: Tasks
        specs = [word.removeprefix("task=") for word in words if word.startswith("task=")]
        if specs:
            tasks = tuple(self._task(spec) for spec in specs)
        else:
            tasks = (
                ("w", int(options.get("members", "1")), asks.shape({**options, **dict.fromkeys(flags, "")})),
            )
        members = sum(count for _, count, _ in tasks)
        gang = Gang(
            key=words[0],
            uid=f"uid-{words[0]}",
            queue=QueueName(options["queue"]),
            share_class=_CLASSES[options.get("class", "unset")],
            priority_value=int(options.get("value", "0")),
            min_member=int(options.get("min", "1" if "single" in flags else str(members))),
            created=self.world.now + self._submitted / 1000,
            min_task_member=asks.minimums(words),
            single="single" in flags,
            restartable="restartable" in flags,
            template=tasks if "template" in flags else (),
            traits=asks.traits(options),
            bound=_bound(options, "tier"),
            subgroups={"part": _bound(options, "part-tier")} if "parts" in options else {},
            partitions={task: ("part", int(options.get("parts", "0"))) for task, _, _ in tasks}
            if "parts" in options
            else {},
        )
        self._submitted += 1
        gates = (options["gate"],) if "gate" in options else ()
        self.world.submit(gang, tasks, other_gates=gates)

    @staticmethod
    def _task(spec: str) -> tuple[str, int, PodShape]:
        name, count, rest = spec.split(":", 2)
        words = rest.split(",")
        options = asks.options([word for word in words if "=" in word])
        return (
            name,
            int(count),
            asks.shape({**options, **{word: "" for word in words if word and "=" not in word}}),
        )

    def _do_finish(self, words: list[str]) -> None:
        self.world.finish(words[0])

    def _do_grow(self, words: list[str]) -> None:
        self.world.grow(words[0], int(words[1]))

    def _do_class(self, words: list[str]) -> None:
        self.world.state.put_gang(replace(self.world.gang(words[0]), share_class=_CLASSES[words[1]]))

    def _pod(self, text: str) -> Pod:
        gang, task, index = text.rsplit("/", 2)
        pods = [p for p in self.world.pods_of(gang) if p.name == f"{gang}-{task}-{index}"]
        return pods[-1] if pods else self.world.pods_of(gang)[int(index)]

    def _do_fail(self, words: list[str]) -> None:
        pod = self._pod(words[0])
        if "told" in words:
            pod = replace(pod, gone_by=self.world.now)
        self.world.fail(pod, recreate=len(words) == 1)

    def _do_delete(self, words: list[str]) -> None:
        self.world.terminate(self._pod(words[0]))

    def _do_protect(self, words: list[str]) -> None:
        for pod in self.world.pods_of(words[0]):
            self.world.put_pod(replace(pod, protected=True))

    def _do_bare(self, words: list[str]) -> None:
        for pod in self.world.pods_of(words[0]):
            self.world.put_pod(replace(pod, bare=True))

    def _do_suspendable(self, words: list[str]) -> None:
        """The agents could suspend these gangs' pods."""
        self.world.suspendable.update(words)
        self.world.agents()

    def _do_not_suspendable(self, words: list[str]) -> None:
        self.world.suspendable.difference_update(words)
        self.world.agents()

    def _do_broken(self, words: list[str]) -> None:
        """Their pods cannot be brought back."""
        self.world.broken.update(words)

    def _do_pause(self, words: list[str], *, wished: bool = True) -> None:
        for pod in self.world.pods_of(words[0]):
            self.world.put_pod(replace(pod, pause_wished=wished))

    def _do_unpause(self, words: list[str]) -> None:
        self._do_pause(words, wished=False)

    def _do_heard_early(self, words: list[str]) -> None:
        for pod in self.world.pods_of(words[0]):
            leaves = replace(pod, suspension=SuspensionState.SUSPENDING, suspendable=False)
            self.world.put_pod(leaves)

    def _do_agents(self, words: list[str]) -> None:
        self.world.agents()

    def _do_ungate(self, words: list[str]) -> None:
        for pod in self.world.pods_of(words[0]):
            self.world.put_pod(replace(pod, other_gates=()))

    def _do_back_off(self, words: list[str]) -> None:
        self.world.state.put_gang(
            replace(self.world.gang(words[0]), not_before=self.world.now + float(words[1]))
        )

    def _do_refused(self, words: list[str]) -> None:
        """What the controller does with a plan that the scheduler does not bind."""
        for pod in self.world.pods_of(words[0]):
            self.world.terminate(pod)
        self.world.leave()
        nodes = frozenset(NodeName(word) for word in words[2:] if word != "costly")
        spares_since = self.world.now if "costly" in words else 0.0
        refused = replace(
            self.world.gang(words[0]),
            most_per_node=int(words[1]),
            blocked_nodes=nodes,
            spares_since=spares_since,
        )
        self.world.state.put_gang(refused)

    def _do_setting(self, words: list[str]) -> None:
        changes: dict[str, dict[str, Any]] = {
            "reclaim-by-weight": {"reclaim_by_weight": True},
            "no-reclaim": {"reclaim": False},
            "high-apart": {"high_apart": True},
            "moves": {"moving": Moving(for_waiting=True)},
            "moves-off": {"moving": Moving()},
            "moves-empty": {"moving": Moving(for_waiting=True, for_empty=True, after_s=60.0)},
            "moves-one-an-hour": {"moving": Moving(for_waiting=True, per_hour=1)},
        }
        self.world.policy = replace(self.world.policy, **changes[words[0]])

    def _do_rule(self, words: list[str]) -> None:
        """One more rule of placement, as the operator writes it: ``when.class=high`` ``nodes=spread``."""
        row: dict[str, Any] = {"name": words[0], "when": {}}
        for key, _, value in (word.partition("=") for word in words[1:]):
            place = row["when"] if key.startswith("when.") else row
            place[key.removeprefix("when.")] = dict(asks.pairs(value)) if key == "when.labels" else value
        policy = self.world.policy
        rules = (*policy.profiles.rules, Row.model_validate(row).rule)
        self.world.policy = replace(policy, profiles=Table(rules))

    def _do_tick(self, words: list[str]) -> None:
        self.world.tick(float(words[0]))

    # --- decisions -------------------------------------------------------------------------------

    def _do_decide(self, words: list[str]) -> None:
        self._plan = self.world.decide(words or None)
        self._out += told.story(self._plan, self.world) or ["nothing to decide"]

    def _do_apply(self, words: list[str]) -> None:
        if self._plan is None:
            raise ScriptError("apply needs a decide before it")
        self.world.apply(self._plan)
        self._plan = None

    def _do_plan_only(self, words: list[str]) -> None:
        """Write the plans of the last decide, and be killed before anything else is done."""
        if self._plan is None:
            raise ScriptError("plan-only needs a decide before it")
        self.world.write_plans(self._plan)
        self._plan = None

    def _do_leave(self, words: list[str]) -> None:
        gone = sorted(pod.name for pod in self.world.leave())
        self._out.append(f"gone: {' '.join(gone) or 'nobody'}")

    def _do_settle(self, words: list[str]) -> None:
        plan = self.world.settle()
        self._out += told.story(plan, self.world) or ["settled, nobody waits"]

    # --- looks -----------------------------------------------------------------------------------

    def _do_cards(self, words: list[str]) -> None:
        self._out += told.cards(self.world.snapshot())

    def _do_pods(self, words: list[str]) -> None:
        for pod in self.world.pods_of(words[0]):
            where = f" on {pod.node}" if pod.node else ""
            self._out.append(f"{pod.name}: {pod.phase.value}{where}{told.suspension(pod)}")
