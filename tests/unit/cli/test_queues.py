"""`kubectl egpu queues`: caps, use, who waits and why."""

from unit.cli import documents as docs
from vc_egpu.cli.views import queues, render
from vc_egpu.volcano.words import names


def amounts(report: queues.QueuesReport, queue: str) -> dict[str, tuple[int, int | None]]:
    (row,) = (row for row in report.queues if row.name == queue)
    return {amount.resource: (amount.used, amount.cap) for amount in row.amounts}


def test_use_against_caps() -> None:
    pods = [docs.pod(f"train-{i}", cards={f"GPU-{i}": (1000, 25)}, group="g") for i in range(3)]
    report = queues.report(
        [docs.queue("research", h20=6, h20_memory=9000)], [docs.group("g", "research")], pods
    )
    assert amounts(report, "research") == {
        "volcano.sh/vgpu-h20": (3, 6),
        "volcano.sh/vgpu-h20-memory": (3000, 9000),
        "volcano.sh/vgpu-h20-cores": (75, None),
    }


def test_native_cards_are_counted_by_themselves() -> None:
    pods = [docs.pod("whole", cards={"GPU-a": (98304, 100), "GPU-b": (98304, 100)}, group="g", native=True)]
    report = queues.report([docs.queue("research", h20=6)], [docs.group("g", "research")], pods)
    assert amounts(report, "research") == {"volcano.sh/vgpu-h20": (0, 6), "volcano.sh/gpu-h20": (2, None)}


def test_children_count_in_their_parents() -> None:
    known = [docs.queue("org", h20=8), docs.queue("team", parent="org", h20=4)]
    pods = [docs.pod("a", cards={"GPU-a": (1, 1)}, group="g")]
    report = queues.report(known, [docs.group("g", "team")], pods)
    assert amounts(report, "org")["volcano.sh/vgpu-h20"] == (1, 8)


def test_a_circle_of_parents_ends() -> None:
    known = [docs.queue("a", parent="b", h20=1), docs.queue("b", parent="a", h20=1)]
    queues.report(known, [docs.group("g", "a")], [docs.pod("p", cards={"GPU-a": (1, 1)}, group="g")])


def test_waiting_by_reason() -> None:
    groups = [
        docs.group("a", "research", said=docs.verdict("WaitingForQuota", "")),
        docs.group("b", "research", said=docs.verdict("WaitingForQuota", "")),
        docs.group("c", "research", said=docs.verdict("WaitingForCards", "")),
        docs.group("d", "research", said=docs.verdict("Admitted", "")),
        docs.group("e", "gone", said=docs.verdict("QueueClosed", "")),
    ]
    pods = [docs.pod(name, group=name, gated=True) for name in "abcde"]
    report = queues.report([docs.queue("research", h20=6)], groups, pods)
    (row,) = report.queues
    assert row.waiting == {"WaitingForCards": 1, "WaitingForQuota": 2}
    assert row.admitted == 1
    assert report.notes == ("1 gangs name queue gone, which does not exist",)
    console = render.console()
    with console.capture() as captured:
        console.print(render.queues(report))
    assert "1 WaitingForCards, 2 WaitingForQuota" in captured.get()


def test_a_gang_that_grows_beyond_its_cap_is_in_and_waits() -> None:
    """As a Deployment of 40 replicas of which one waits: it was told that nothing is admitted."""
    group = docs.group("g", "research", said=docs.verdict("WaitingForQuota", "2 of 3 members have a place"))
    new = docs.group("new", "research")
    pods = [docs.pod(f"web-{i}", cards={f"GPU-{i}": (1, 1)}, group="g") for i in range(2)]
    pods += [docs.pod("web-2", group="g", gated=True), docs.pod("one", cards={"GPU-b": (1, 1)}, group="new")]
    (row,) = queues.report([docs.queue("research", h20=3)], [group, new], pods).queues
    assert (row.admitted, row.waiting) == (2, {"WaitingForQuota": 1})


def test_who_is_scaled_to_nothing_does_not_wait() -> None:
    """Nor a batch Job that is suspended, whose pods are gone; a Volcano Job's are still to be made."""
    waits = docs.verdict("WaitingForMembers", "")
    nobody, over, coming = (
        docs.group(name, "research", job=name, said=waits) for name in ("nobody", "over", "coming")
    )
    for batch in (nobody, over):
        batch["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    pods = [docs.pod("done", group="over", phase="Succeeded")]
    (row,) = queues.report([docs.queue("research", h20=6)], [nobody, over, coming], pods).queues
    assert row.waiting == {"WaitingForMembers": 1}


def test_finished_pods_use_nothing() -> None:
    pods = [docs.pod("a", cards={"GPU-a": (1, 1)}, group="g", phase="Succeeded")]
    report = queues.report([docs.queue("research", h20=6)], [docs.group("g", "research")], pods)
    assert amounts(report, "research")["volcano.sh/vgpu-h20"] == (0, 6)


def test_a_queue_that_cannot_be_read_is_shown_as_such() -> None:
    bad = docs.queue("bad")
    bad["spec"]["capability"] = {"volcano.sh/vgpu-h20": "lots"}
    (row,) = queues.report([bad], [], []).queues
    assert "cannot be read" in row.problem


def test_a_gang_counts_where_its_pods_were_checked_whatever_its_podgroup_names_by_now() -> None:
    known = [docs.queue("mine", h20=6), docs.queue("theirs", h20=6)]
    runs = docs.pod("runs", cards={"GPU-a": (1, 1)}, group="r", annotations={names.QUEUE_NAME: "mine"})
    waits = docs.pod("waits", group="w", gated=True, labels={names.JOB_QUEUE_NAME: "mine"})
    groups = [
        docs.group("r", "theirs", said=docs.verdict("Admitted", "")),
        docs.group("w", "theirs", said=docs.verdict("WaitingForQuota", "")),
    ]
    report = queues.report(known, groups, [runs, waits])
    assert amounts(report, "mine")["volcano.sh/vgpu-h20"] == (1, 6)
    assert amounts(report, "theirs")["volcano.sh/vgpu-h20"] == (0, 6)
    told = {row.name: (row.admitted, row.waiting) for row in report.queues}
    assert told == {"mine": (1, {"WaitingForQuota": 1}), "theirs": (0, {})}


def test_a_pod_whose_podgroup_is_gone_counts_where_it_was_checked() -> None:
    pod = docs.pod("a", cards={"GPU-a": (1, 1)}, group="gone", labels={names.JOB_QUEUE_NAME: "research"})
    report = queues.report([docs.queue("research", h20=6)], [], [pod])
    assert amounts(report, "research")["volcano.sh/vgpu-h20"] == (1, 6)


def test_what_is_out_of_sight_is_counted_by_the_queue_s_status() -> None:
    """A user who may see one namespace is not told that other tenants use nothing."""
    ours, theirs = docs.queue("ours", parent="org", h20=6), docs.queue("theirs", parent="org", h20=32)
    theirs["status"] |= {"allocated": {"cpu": "2", "volcano.sh/vgpu-h20": "5", "pods": "9"}, "running": 2}
    ours["status"] |= {"allocated": {"volcano.sh/vgpu-h20": "1"}, "running": 0}  # a moment behind
    known = [ours, theirs, docs.queue("org", h20=40)]
    pods = [docs.pod(f"a-{i}", cards={f"GPU-{i}": (1, 1)}, group="g") for i in range(2)]
    groups = [docs.group("g", "ours", said=docs.verdict("Admitted", ""))]
    report = queues.report(known, groups, pods, partial="you may list pods in namespace ml only")
    used = {name: amounts(report, name)["volcano.sh/vgpu-h20"][0] for name in ("ours", "theirs", "org")}
    assert used == {"ours": 2, "theirs": 5, "org": 7}
    assert {row.name: row.admitted for row in report.queues} == {"ours": 1, "theirs": 2, "org": 0}
    everything = queues.report(known, groups, pods)
    assert amounts(everything, "theirs")["volcano.sh/vgpu-h20"] == (0, 32), "who sees all counts for himself"


def test_what_volcano_counts_for_a_parent_has_the_queues_below_it_in_it() -> None:
    """Its scheduler adds what a queue holds to all above it, up to ``root``, which takes no work itself."""
    known = [
        docs.queue("root"),
        docs.queue("org", parent="root", h20=40),
        docs.queue("ours", parent="org", h20=6),
        docs.queue("theirs", parent="org", h20=32),
    ]
    for queue, held in zip(known, (9, 6, 1, 5), strict=True):
        queue["status"]["allocated"] = {"volcano.sh/vgpu-h20": str(held)}
    pods = [docs.pod(f"a-{i}", cards={f"GPU-{i}": (1, 1)}, group="g") for i in range(2)]
    report = queues.report(known, [docs.group("g", "ours")], pods, partial="some")
    used = {q: amounts(report, q)["volcano.sh/vgpu-h20"][0] for q in ("ours", "theirs", "org", "root")}
    assert used == {"ours": 2, "theirs": 5, "org": 6, "root": 9}


def test_a_status_that_is_none_counts_nothing() -> None:
    bad = docs.queue("research", h20=6)
    bad["status"]["allocated"] = {"volcano.sh/vgpu-h20": "lots", "volcano.sh/vgpu-h20-cores": "50"}
    assert amounts(queues.report([bad], [], [], partial="some"), "research") == {
        "volcano.sh/vgpu-h20": (0, 6)
    }
