"""Three real clusters seen and used as one, also while they are in trouble."""

import datetime
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cities.group import NODES, City, Group, group
from cities.line import Moment
from cities.loads import lay, random_case
from cities.user import Page, Said, User, submission
from localcluster.api import wait_until
from localcluster.patience import stretched
from outcomes.workload import shares
from rigs.foresight import CARDS, OURS, TIMEOUT_S, Json, gang_job
from vc_egpu.cli import exit_status
from vc_egpu.kube.resources import VOLCANO_JOBS

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]
CASES = 10
LATE_S = 30.0
BACK_S = 120.0
"""For all programs of a cluster to find its API server again: some wait half a minute between tries."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with group(tmp_path_factory.mktemp("cities")) as found:
        yield found


@pytest.fixture
def here(clusters: Group) -> Iterator[Group]:
    clusters.settle()
    yield clusters
    clusters.forget_all()


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def until_read(page: Page, city: str) -> list[Json]:
    """Wait until the page knows the nodes of one cluster; these."""
    found: list[Json] = []

    def read() -> bool:
        found[:] = page.json(f"/api/state?cluster={city}")["nodes"]
        return bool(found)

    wait_until(f"{city} is read", read, TIMEOUT_S)
    return found


def cards_by_city(said: Said) -> dict[str, int]:
    return {one["cluster"]: len(one["answer"]["cards"]) for one in said.document["clusters"]}


# --- seen as one ------------------------------------------------------------------------------------


def test_one_table_shows_all_three(here: Group, user: User) -> None:
    many = ("--clusters", str(here.file))
    said = user.egpu("cards", *many, "-o", "json")
    assert (said.status, said.document["unreachable"]) == (exit_status.EXIT_OK, []), said.text
    assert cards_by_city(said) == {name: CARDS * nodes for name, nodes in NODES.items()}
    table = user.egpu("cards", *many).out.splitlines()
    assert table[0].split()[:2] == ["CLUSTER", "NODE"]
    assert [line.split()[0] for line in table[1:]] == [
        name for name, nodes in NODES.items() for _ in range(CARDS * nodes)
    ]
    total = CARDS * sum(NODES.values())
    assert f"3 of 3 clusters have {total} h20" in user.egpu("clusters", *many).text


def test_queues_and_reasons_are_told_by_cluster(here: Group, user: User) -> None:
    """A Job waits in Xian, where it is too large; another of the same name runs in Shanghai."""
    job = gang_job("train", OURS, 2, shares(cards=CARDS))
    here.cities["shanghai"].town.until_runs(here.cities["shanghai"].town.submit(job), 2)
    here.cities["xian"].town.until_waits(here.cities["xian"].town.submit(job), "WaitingForCards")
    many = ("--clusters", str(here.file), "-n", OURS)
    said = user.egpu("queues", *many, "-o", "json").document
    queues = {
        one["cluster"]: {row["name"]: row for row in one["answer"]["queues"]} for one in said["clusters"]
    }
    assert {city: rows[OURS]["admitted"] for city, rows in queues.items()} == {
        "hangzhou": 0, "shanghai": 1, "xian": 0,
    }  # fmt: skip
    assert queues["xian"][OURS]["waiting"] == {"WaitingForCards": 1}
    why = user.egpu("why", "train", *many)
    assert re.search(r"xian: train: WaitingForCards", why.text), why.text
    assert "shanghai: train:" in why.text
    assert re.search("hangzhou: .*train", why.text)


def test_one_page_shows_all_three_and_leads_into_each(here: Group, user: User) -> None:
    with user.page("--clusters", str(here.file)) as page:
        wait_until("all are read", lambda: all(one["read"] for one in page.sites()["clusters"]), TIMEOUT_S)
        told = page.sites()
        assert (told["asked"], told["answered"]) == (3, 3)
        assert [(one["name"], one["cards"]) for one in told["sums"]] == [("h20", CARDS * sum(NODES.values()))]
        for name, nodes in NODES.items():
            assert len(until_read(page, name)) == nodes


# --- in trouble -------------------------------------------------------------------------------------


def test_three_troubles_at_once_leave_the_rest_right(here: Group, user: User) -> None:
    """One is killed in the middle of its answer, one is 30 s late, and in one the user's certificate has
    expired. The last one is there twice: also with credentials that are good."""
    hangzhou, shanghai, xian = here.cities.values()
    before = user.egpu("cards", "--clusters", str(here.file))
    assert before.status == exit_status.EXIT_OK
    file = here.file_of(
        {
            "hangzhou": hangzhou.line.kubeconfig,
            "shanghai": shanghai.line.kubeconfig,
            "xian": xian.cluster.kubeconfig,
            "expired": here.expired(xian),
        },
        "trouble",
    )
    cut = hangzhou.line.cut_at("GET", "/api/v1/nodes", "within", hangzhou.kill)
    shanghai.line.late_s = LATE_S
    try:
        said = user.egpu("cards", "--clusters", str(file), "-o", "json")
        assert cut.done.is_set()
        assert (said.status, cards_by_city(said)) == (exit_status.EXIT_NO_CLUSTER, {"xian": CARDS})
        assert said.took_s < stretched(LATE_S / 2), "it waits for none of them longer than 3 s"
        silent = {one["cluster"]: one for one in said.document["unreachable"]}
        assert set(silent) == {"hangzhou", "shanghai", "expired"}
        assert "no answer within 3" in silent["shanghai"]["reason"]
        assert "does not accept who you are" in silent["expired"]["reason"]
        assert silent["hangzhou"]["reason"]
        assert silent["hangzhou"]["answered_last"]
        assert "this is of 1 of 4 clusters" in user.egpu("queues", "--clusters", str(file)).text
        first = user.submit(gang_job("train", OURS, 1, shares()), file, "--dry-run").document["offers"]
        assert [(one["cluster"], one["chance"]) for one in first] == [
            ("xian", "starts"), ("hangzhou", "cannot tell"), ("shanghai", "cannot tell"),
            ("expired", "cannot tell"),
        ]  # fmt: skip
        with user.page("--clusters", str(file)) as page:
            wait_until(
                "none is asked any more",
                lambda: all(one["state"] != "asking" for one in page.sites()["clusters"]),
                LATE_S / 2,
            )
            told = page.sites()
            assert (told["asked"], told["answered"]) == (4, 1)
            assert [(one["name"], one["cards"]) for one in told["sums"]] == [("h20", CARDS)]
            assert {one["name"] for one in told["clusters"] if one["reason"]} == set(silent)
    finally:
        shanghai.line.late_s = 0.0
        hangzhou.return_from_the_dead()
    # A node whose heartbeat could not be written for 40 s is not ready for a moment.
    wait_until(
        "all is as it was", lambda: user.egpu("cards", "--clusters", str(here.file)).out == before.out, BACK_S
    )


# --- first start ------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """RFC 3339 as seconds since 1970."""
    return datetime.datetime.fromisoformat(text).timestamp()


def started_at(city: City, key: str) -> float | None:
    """When the last member began to run; None: not all run."""
    pods = [pod for pod in city.town.pods() if pod["metadata"]["labels"]["volcano.sh/job-name"] == key]
    begun = [pod["status"].get("startTime") for pod in pods]
    return max(map(seconds, begun)) if begun and all(begun) else None


def test_the_chosen_cluster_is_the_one_that_starts_it_first(here: Group, user: User) -> None:
    """Ten random cases. The same Job is made in the other cities, too: none of them starts it earlier."""
    rng, wrong, outcomes = random.Random(11), list[str](), list[str]()
    for number in range(CASES):
        case = random_case(rng, number)
        lay(here, case)
        said = user.submit(case.job, here.file).document
        chosen, name = said["cluster"], case.job["metadata"]["name"]
        outcomes.append(said["offers"][0]["chance"])
        print(f"{case.told} -> {chosen}, {outcomes[-1]}")
        others = [city for other, city in here.cities.items() if other != chosen]
        for city in others:
            city.town.submit(case.job)
        mine = here.cities[chosen]
        members = case.job["spec"]["minAvailable"]
        mine.town.until_runs(f"{OURS}/{name}", members)
        began = started_at(mine, name)
        assert began is not None
        for city in others:
            theirs = started_at(city, name)
            if theirs is not None and theirs < began - 2:  # they are told in whole seconds
                wrong.append(f"{case.told}: {city.name} {began - theirs:.0f} s before {chosen}")
        here.forget_all()
        here.settle()
    assert wrong == []
    assert {"starts", "waits"} <= set(outcomes)


def sent_to_shanghai(here: Group, user: User, moment: Moment, unclear_s: int) -> Said:
    """The Job goes where most room is. That cluster is killed as it gets it."""
    shanghai = here.cities["shanghai"]
    cut = shanghai.line.cut_at("POST", "/jobs", moment, shanghai.kill)
    said = user.submit(gang_job("train", OURS, 1, shares()), here.file, "--unclear-timeout", str(unclear_s))
    assert cut.done.is_set(), said.text
    return said


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_cluster_killed_as_it_gets_a_job_never_makes_two(here: Group, user: User, moment: Moment) -> None:
    """Before it has the Job, or after that and before it says so: the command cannot tell which."""
    key, shanghai = f"{OURS}/train", here.cities["shanghai"]
    try:
        said = sent_to_shanghai(here, user, moment, 1)
        assert (said.status, said.document["state"], said.document["cluster"]) == (
            exit_status.EXIT_NO_CLUSTER, "unclear", "shanghai",
        ), said.text  # fmt: skip
        (again,) = re.findall(r"--submit-id (shanghai/\S+)", said.document["why"])
        job = gang_job("train", OURS, 1, shares())
        still = user.submit(job, here.file, "--submit-id", again, "--unclear-timeout", "1")
        assert (still.status, still.document["state"]) == (exit_status.EXIT_NO_CLUSTER, "unclear")
        unnamed = user.submit(job, here.file, "--submit-id", again.partition("/")[2])
        assert unnamed.document["state"] == "unclear"
        assert [city.jobs() for name, city in here.cities.items() if name != "shanghai"] == [[], []]
    finally:
        shanghai.return_from_the_dead()
    assert here.where(key) == (["shanghai"] if moment == "after" else [])
    done = user.submit(job, here.file, "--submit-id", again)
    assert done.document["state"] == ("was there" if moment == "after" else "sent"), done.text
    assert here.where(key) == ["shanghai"]
    shanghai.town.until_runs(key, 1, BACK_S)


def test_a_cluster_that_returns_in_time_clears_it_up(here: Group, user: User) -> None:
    """The command asks on, and ends as if nothing had been."""
    key, shanghai = f"{OURS}/train", here.cities["shanghai"]
    cut = shanghai.line.cut_at("POST", "/jobs", "after", shanghai.kill)
    manifest = user.written(gang_job("train", OURS, 1, shares()))
    asking = user.begin(*submission(manifest, here.file))
    try:
        assert cut.done.wait(TIMEOUT_S), asking.communicate(timeout=90)
        assert asking.poll() is None
    finally:
        shanghai.return_from_the_dead()
    out, err = asking.communicate(timeout=90)
    assert '"state": "sent"' in out or '"state":"sent"' in out, out + err
    assert here.where(key) == ["shanghai"]
    (job,) = shanghai.town.stack.kit.api.list(VOLCANO_JOBS).items
    assert job["metadata"]["name"] == "train"
