"""A real MultiKueue manager and two members with our stack (KUEUE_BIN and KUEUE_CONFIG_DIR)."""

from collections.abc import Iterator
from typing import Any

import pytest
from cities.kueue import Kueue, NoKueueError, configure
from cities.multikueue import MEMBERS, Manager, batch_job, manager
from localcluster.api import wait_until
from localcluster.errors import LocalClusterError
from outcomes.workload import shares
from rigs.foresight import CARDS, OTHERS, OURS, TIMEOUT_S, gang_job
from stack.kit import cards_of, condition, is_running
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
Json = dict[str, Any]
STAYS_S = 20.0
MOVES_S = 120.0


@pytest.fixture(scope="module")
def here() -> Iterator[Manager]:
    try:
        kueue = Kueue.from_environment()
    except NoKueueError as error:
        pytest.skip(str(error))
    with manager(kueue) as found:
        yield found


def pods_of(here: Manager, member: str, job: str) -> list[Json]:
    pods = here.members[member].town.stack.kit.api.list(PODS, OURS).items
    return [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == job]


def running_in(here: Manager, member: str, job: str) -> list[bool]:
    return [is_running(pod) for pod in pods_of(here, member, job)]


def until_held(here: Manager, job: str) -> str:
    """Wait until a member has the Job; its name."""
    wait_until(f"a member has {job}", lambda: bool(here.holder(job)), TIMEOUT_S)
    return here.holder(job)


def test_a_job_of_the_manager_gets_its_cards_in_one_member(here: Manager) -> None:
    """Kueue lets it go, then we do: each pod has cards of ours. Its end is told in the manager."""
    here.submit(batch_job("train", 2, 2, ends_s=10))
    member = until_held(here, "train")
    (other,) = set(MEMBERS) - {member}
    wait_until("both pods run", lambda: running_in(here, member, "train") == [True, True], TIMEOUT_S)
    assert [len(cards_of(pod)) for pod in pods_of(here, member, "train")] == [2, 2]
    assert len({card for pod in pods_of(here, member, "train") for card in cards_of(pod)}) == CARDS
    assert here.jobs(here.members[other].town.stack.cluster) == {}
    assert here.workloads(here.members[other].town.stack.cluster) == []
    done = lambda: condition(here.jobs(here.cluster)["train"], "Complete") is not None  # noqa: E731
    wait_until("the manager says that it is over", done, TIMEOUT_S)
    here.end("train")


def held_without_cards(here: Manager) -> str:
    """A Job goes to the first member, whose quota is free and whose cards are not. Returns who has them."""
    a, b = (here.members[name] for name in MEMBERS)
    key = a.town.submit(gang_job("work", OTHERS, 1, shares(cards=CARDS), "high"))
    a.town.until_runs(key, 1)
    b.kueue.pause()
    try:
        here.submit(batch_job("late", 1, 2))
        assert until_held(here, "late") == a.name
    finally:
        b.kueue.resume()
    return key


def test_a_job_waits_where_quota_was_reserved_first(here: Manager) -> None:
    """The quota of a member is a number: its cards are taken by others, those of the other member are free.
    The Job says why it waits, and nothing takes it to the other member."""
    a = here.members[MEMBERS[0]]
    key = held_without_cards(here)

    def waits() -> bool:
        found = [condition(pod, names.CONDITION_ADMITTED) for pod in pods_of(here, a.name, "late")]
        return [one["reason"] if one else "" for one in found] == ["WaitingForCards"]

    wait_until("its pod says that it waits for cards", waits, TIMEOUT_S)
    with pytest.raises(LocalClusterError, match="it moves on"):
        wait_until("it moves on", lambda: here.holder("late") != a.name, STAYS_S)
    a.town.end(key)
    wait_until("it runs", lambda: all(map(is_running, pods_of(here, a.name, "late"))), TIMEOUT_S)
    here.end("late")


def test_kueue_tries_elsewhere_where_pods_are_not_ready_in_time(here: Manager) -> None:
    """With ``waitForPodsReady`` in the members the time in which a pod waits for our cards counts. The
    manager then lets all members try again, so that the Job ends up where cards are free."""
    for member in here.members.values():
        configure(member.town.stack.cluster, member.kueue, waitForPodsReady={"timeout": "8s"})
    a, b = (here.members[name] for name in MEMBERS)
    key = held_without_cards(here)
    wait_until("the other member has it", lambda: here.holder("late") == b.name, MOVES_S)
    wait_until("it runs there", lambda: running_in(here, b.name, "late") == [True], TIMEOUT_S)
    a.town.end(key)
    here.end("late")
