"""The page of several clusters: one works, one breaks off, one is slow, one has expired credentials."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.browser import Browser, Page, axe, chromium
from unit.page.cluster_api import ClusterApi, cluster_api
from unit.page.conftest import Until
from unit.page.serving import Client, running
from unit.page.trouble import breaking_off, late
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.sites.catalogue import Catalogue, Site, of_file
from vc_egpu.cli.sites.overview import ModelRow, Overview
from vc_egpu.kube.server import listening
from vc_egpu.page.main import sites_door
from vc_egpu.page.serving import guard
from vc_egpu.page.serving.server import PageServer
from vc_egpu.page.sites.rounds import Rounds, SitesReport

SHOWN = "document.documentElement.dataset.sites"
LINKS = [{"between": ["hz1", "sh1"], "mbitPerS": 10000}]
TEAM = Overview((ModelRow("h20", 8, 0, 0, 786432),), 2, ())


@dataclass
class Group:
    """Clusters with a page of all of them."""

    url: str
    link: str
    report: Callable[[], SitesReport]
    apis: dict[str, ClusterApi]
    file: Path

    def client(self) -> Client:
        client = Client(self.url)
        assert client.get(self.link.removeprefix(self.url)).status == 303
        return client

    def answers(self) -> set[str]:
        return {one.name for one in self.report().clusters if one.state == "ok"}


@contextmanager
def page_of(file: Path, apis: dict[str, ClusterApi], within_s: float) -> Iterator[Group]:
    taken = listening("127.0.0.1", 0)
    port = int(taken.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    door = sites_door(of_file(str(file)), "ml", port, within_s)
    try:
        with running(PageServer(guard.address_of(url), door, sites=door), taken):
            yield Group(url, f"{url}/?token={door.secret}", door.report, apis, file)
    finally:
        door.close()


def kubeconfig(folder: Path, name: str, url: str, token: str = "operator-token") -> dict[str, str]:
    api = ClusterApi()
    api.url = url
    (folder / name).mkdir()
    return {"name": name, "kubeconfig": str(api.kubeconfig(folder / name, token))}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Two that work, and three in trouble."""
    with ExitStack() as stack:
        apis = {name: stack.enter_context(cluster_api()) for name in ("hz1", "sh1")}
        for number, api in enumerate(apis.values(), 1):
            cards = tuple(docs.card(f"GPU-{i}", i) for i in range(number))
            api.put("nodes", synthetic.node_of("n1", cards))
            api.put("queues", docs.queue("research", h20=4))
        slow = stack.enter_context(late(apis["hz1"].url, 30.0))
        broken = stack.enter_context(breaking_off())
        sites = [
            kubeconfig(tmp_path, "hz1", apis["hz1"].url) | {"title": "<b>Hangzhou</b> 1", "city": "Hangzhou"},
            kubeconfig(tmp_path, "sh1", apis["sh1"].url) | {"city": "Shanghai"},
            kubeconfig(tmp_path, "slow", slow) | {"city": "Shanghai"},
            kubeconfig(tmp_path, "broken", broken),
            kubeconfig(tmp_path, "expired", apis["hz1"].url, "old-token") | {"city": "Xian"},
        ]
        file = tmp_path / "clusters.yaml"
        file.write_text(yaml.safe_dump({"clusters": sites, "links": LINKS}))
        yield stack.enter_context(page_of(file, apis, 1.0))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, group: Group) -> Iterator[Page]:
    with browser.page() as found:
        found.open(group.link)
        found.until(f"{SHOWN} === '2/5' && document.querySelectorAll('.site.silent').length === 3")
        yield found
        assert found.complaints() == []


# --- what is known of them -------------------------------------------------------------------------


def test_trouble_of_some_leaves_the_rest_right_and_is_named(group: Group, until: Until) -> None:
    began = time.monotonic()
    until(lambda: all(one.state != "asking" for one in group.report().clusters))
    assert time.monotonic() - began < 3.0
    told = group.report()
    rows = {one.name: one for one in told.clusters}
    assert (told.asked, told.answered, group.answers()) == (5, 2, {"hz1", "sh1"})
    assert [(row.name, row.cards) for row in told.sums] == [("h20", 3)]
    assert "no answer" in rows["slow"].reason
    assert "does not accept who you are" in rows["expired"].reason
    assert rows["broken"].reason
    for name in ("slow", "broken", "expired"):
        assert rows[name].state == "silent"
        assert rows[name].since.endswith("Z")
        assert (rows[name].answered, rows[name].models, rows[name].waiting) == ("", (), None)


class Scripted:
    """A cluster that does as it is told at each question."""

    def __init__(self, *steps: Overview | Exception) -> None:
        self.steps = list(steps)

    def __call__(self, _site: Site) -> Overview:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step


def rounds_of(*steps: Overview | Exception) -> Rounds:
    catalogue = Catalogue(clusters=(Site(name="hz1"),))
    return Rounds(catalogue, Scripted(*steps), lambda _: TEAM, 1.0, every_s=0.01).start()


def test_a_cluster_that_falls_silent_keeps_its_figures_but_is_in_no_sum(until: Until) -> None:
    rounds = rounds_of(TEAM, OSError("the line is cut"))
    until(lambda: rounds.report().clusters[0].state == "silent")
    (row,), told = rounds.report().clusters, rounds.report()
    rounds.stop()
    assert [(model.name, model.cards) for model in row.models] == [("h20", 8)]
    assert row.answered
    assert row.since
    assert "the line is cut" in row.reason
    assert (told.asked, told.answered, told.sums) == (1, 0, ())


def test_a_cluster_that_comes_back_is_silent_no_longer(until: Until) -> None:
    rounds = rounds_of(OSError("the line is cut"), OSError("still"), TEAM)
    until(lambda: rounds.report().clusters[0].state == "ok")
    (row,) = rounds.report().clusters
    rounds.stop()
    assert (row.reason, row.since, row.answered != "") == ("", "", True)


def test_no_cluster_is_asked_while_no_page_asks(until: Until) -> None:
    asked: list[str] = []

    def quick(site: Site) -> Overview:
        asked.append(site.name)
        return TEAM

    catalogue = Catalogue(clusters=(Site(name="hz1"),))
    rounds = Rounds(catalogue, quick, lambda _: TEAM, 1.0, every_s=0.01, unwatched_s=0.3).start()
    until(lambda: len(asked) > 2)
    until(lambda: not rounds.is_watched)
    before = len(asked)
    threading.Event().wait(0.3)  # thirty rounds
    assert len(asked) <= before + 1, "the look under way, and no other"
    rounds.report()
    until(lambda: len(asked) > before + 2)
    rounds.stop()


def test_what_is_not_read_yet_is_in_no_sum(until: Until) -> None:
    """Two clusters answer; the pods of one cannot be read: the sum of what is used is not known."""

    def whole(site: Site) -> Overview:
        if site.name == "sh1":
            raise OSError("pods are too many")
        return TEAM

    catalogue = Catalogue(clusters=(Site(name="hz1"), Site(name="sh1")))
    rounds = Rounds(catalogue, lambda _: TEAM, whole, 1.0).start()
    until(lambda: any(one.read for one in rounds.report().clusters))
    until(lambda: any(one.reason for one in rounds.report().clusters))
    told = rounds.report()
    rounds.stop()
    one, other = told.clusters
    assert (one.waiting, one.models[0].used_mib, one.reason) == (2, 0, "")
    assert (other.state, other.waiting, other.models[0].used_mib) == ("ok", None, None)
    assert "pods are too many" in other.reason
    (row,) = told.sums
    assert (row.cards, row.used_mib, row.memory_mib) == (16, None, 2 * 786432)


def test_a_cluster_without_a_kubeconfig_is_told_and_not_fatal(group: Group, until: Until) -> None:
    group.file.write_text(yaml.safe_dump({"clusters": [{"name": "x", "kubeconfig": "/nowhere/k"}]}))
    with page_of(group.file, {}, 1.0) as other:
        until(lambda: other.report().clusters[0].state == "silent")
        assert "nowhere" in other.report().clusters[0].reason
        assert other.client().get("/api/state?cluster=x").status == 502


# --- the server ------------------------------------------------------------------------------------


def test_nothing_is_told_without_the_secret(group: Group) -> None:
    stranger = Client(group.url)
    assert stranger.get("/api/sites").status == 401
    assert stranger.get("/api/state?cluster=hz1").status == 401
    told = stranger.json("/api/session")
    assert (told["signedIn"], told["sites"]) == (False, [])


def test_each_question_names_its_cluster(group: Group, until: Until) -> None:
    client = group.client()

    def nodes(name: str) -> list[Any]:
        found: list[Any] = client.json(f"/api/state?cluster={name}")["nodes"]
        return found

    until(lambda: [len(node[2]) for node in nodes("hz1")] == [1])
    until(lambda: [len(node[2]) for node in nodes("sh1")] == [2])
    assert client.get("/api/state").status == 404
    assert client.get("/api/state?cluster=nowhere").status == 404


def test_nothing_is_written_in_any_cluster(group: Group, until: Until) -> None:
    until(lambda: group.answers() == {"hz1", "sh1"})
    group.client().json("/api/state?cluster=sh1")
    for api in group.apis.values():
        methods = {(method, path) for method, path, *_ in list(api.requests)}
        assert all(m == "GET" or "selfsubject" in path for m, path in methods), methods


def test_the_past_is_refused_with_several_clusters(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ui", "--clusters", str(group.file), "--prometheus", "http://prometheus:9090"]
    assert kubectl.main(words) == exit_status.EXIT_FOUND
    assert "the past of one cluster" in capsys.readouterr().err


# --- the page --------------------------------------------------------------------------------------


def test_the_page_shows_all_sites_and_says_what_the_sums_lack(page: Page) -> None:
    assert page.text("#answered") == "2 of 5 clusters answer. The sums lack: slow, broken, expired."
    assert "10 Gbit/s to sh1" in page.text(".site")
    assert page.text(".site h3 a") == "<b>Hangzhou</b> 1"
    page.until("!document.querySelector('main table').innerText.includes('Its use')")
    assert page.text("main table tbody tr").split() == ["h20", "3", "0", "0%", "288", "GiB"]
    cities = page.run("[...document.querySelectorAll('.city h2')].map(one => one.innerText)")
    assert cities == ["Hangzhou", "Shanghai", "No city named", "Xian"]
    silent = page.run("[...document.querySelectorAll('.site.silent .bad')].map(one => one.innerText)")
    assert len(silent) == 3
    assert all(one.startswith("Silent since ") for one in silent)


def test_the_switch_leads_into_a_cluster_by_keys_and_back(page: Page) -> None:
    page.run("document.querySelector('.site h3 a').focus()")
    page.press("Enter")
    page.until("document.querySelector('canvas')?.getAttribute('aria-label')?.startsWith('1 card')")
    page.run("location.hash = '#/queues'")
    page.until_text("research", "main")
    page.choose("#cluster", "sh1")
    page.until("location.search === '?cluster=sh1' && document.querySelector('#cluster')?.value === 'sh1'")
    page.until_text("research", "main")
    page.run("location.hash = '#/cards'")
    page.until("document.querySelector('canvas')?.getAttribute('aria-label')?.startsWith('2 cards')")
    page.click("nav a")
    page.until(f"{SHOWN} === '2/5' && location.search === ''")


def test_a_cluster_that_knows_the_user_no_longer_leaves_the_switch(page: Page) -> None:
    page.choose("#cluster", "expired")
    page.until_text("does not take your credentials any more", "#banner")
    page.choose("#cluster", "hz1")
    page.until("document.querySelector('#connection.live') !== null")


def test_an_end_that_comes_before_the_state_stays_one(browser: Browser, group: Group) -> None:
    """The state was asked for first, and its answer took longer."""
    late = "const asked = fetch; window.fetch = async (...of) => { const found = await asked(...of);" + (
        "if (String(of[0]).includes('/api/state')) await new Promise((go) => setTimeout(go, 1000));"
        "window.came = of[0]; return found; };"
    )
    with browser.page() as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=late)
        page.open(group.link)
        page.until(f"{SHOWN} === '2/5'")
        page.choose("#cluster", "expired")
        page.until("String(window.came).includes('/api/state')")
        page.until_text("does not take your credentials any more", "#banner")


def test_a_page_whose_server_is_gone_says_so(page: Page) -> None:
    page.offline(on=True)
    page.until("document.querySelector('#connection.lost') !== null")
    page.offline(on=False)
    page.until("document.querySelector('#connection.live') !== null")


def test_the_page_speaks_chinese(browser: Browser, group: Group) -> None:
    with browser.page(locale="zh-CN") as page:
        page.open(group.link)
        page.until(f"{SHOWN} === '2/5' && document.querySelectorAll('.site.silent').length === 3")
        assert page.text("#answered").startswith("5 个集群中有 2 个应答。 合计中缺少：slow")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(browser: Browser, group: Group, dark: bool) -> None:
    source = axe()
    with browser.page(dark=dark) as page:
        page.open(group.link)
        page.until(f"{SHOWN} === '2/5' && document.querySelectorAll('.site.silent').length === 3")
        page.call("Runtime.evaluate", expression=source)
        found = page.run("axe.run(document).then(one => JSON.stringify(one.violations))")
        assert json.loads(found) == []
