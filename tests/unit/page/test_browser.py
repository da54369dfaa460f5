"""The page in a real Chromium: what each role sees, by mouse and keys, in both languages and colours."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.browser import Browser, Page, axe, chromium
from unit.page.cluster_api import Account, ClusterApi, cluster_api
from unit.page.questions import QUESTIONS
from unit.page.serving import Site, local_site, shared_site
from vc_egpu.page.serving.server import STATIC

SHARE = ("h20", 24576, 25, "low")
LIVE = "document.querySelector('#connection')?.classList.contains('live')"
READ = f"{LIVE} && document.documentElement.dataset.read === 'yes'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """The operator's tab, with all that is to be read."""
    with browser.page() as found:
        opened(found, site)
        yield found
        assert found.complaints() == []


def opened(page: Page, site: Site, view: str = "cards") -> Page:
    page.open(site.link)
    page.until(READ)
    go(page, view)
    return page


def go(page: Page, view: str) -> None:
    page.run(f"location.hash = '#/{view}'")
    page.until("document.querySelector('main h1') !== null")


def as_table(page: Page) -> list[list[str]]:
    """The rows of the first table in the view."""
    rows: list[list[str]] = page.run(
        "[...document.querySelectorAll('main table tbody tr')].map(row =>"
        " [...row.children].map(cell => cell.innerText.trim()))"
    )
    return rows


# --- the operator ----------------------------------------------------------------------------------


def test_the_operator_opens_the_link_and_sees_all_cards(page: Page, site: Site) -> None:
    page.until(
        "document.querySelector('canvas').getAttribute('aria-label')?.startsWith('3 cards on 2 nodes')"
    )
    assert page.run("location.search") == ""  # the secret does not stay in the address
    assert page.text("#user") == "operator"
    page.until(
        "document.querySelector('nav').innerText.split(/\\s+/).join() === 'Cards,Queues,Waiting1,Decisions'"
    )
    assert {url.split("/", 3)[2] for url in page.requests() if url.startswith("http")} == {
        site.url.removeprefix("http://")
    }


def test_the_canvas_is_painted(page: Page) -> None:
    page.until("document.documentElement.dataset.painted !== undefined")
    colours = page.run(
        "(() => { const one = document.querySelector('canvas');"
        " const data = one.getContext('2d').getImageData(0, 0, one.width, one.height).data;"
        " const seen = new Set(); for (let at = 0; at < data.length; at += 4)"
        " seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]); return seen.size })()"
    )
    assert colours > 5


def test_a_card_names_those_that_share_it(page: Page) -> None:
    go(page, "cards/n1/0")
    page.until_text("ml/train-0", "#card")
    text = page.text("#card")
    assert "web/chat-0" in text
    assert "48 GiB / 96 GiB" in text
    assert "GPU-1" in text
    assert "low" in text
    assert "high" in text


def test_an_ill_card_says_why(page: Page) -> None:
    go(page, "cards/n2/0")
    page.until_text("ill: XID 79", "#card")


def test_a_click_on_a_cell_opens_its_card(page: Page) -> None:
    box = page.run(
        "(() => { const r = document.querySelector('#map').getBoundingClientRect(); return [r.x, r.y] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        # The first cell lies below the heading of its model and the name of its node.
        page.call(
            "Input.dispatchMouseEvent", type=kind, x=box[0] + 15, y=box[1] + 55, button="left", clickCount=1
        )
    page.until_text("Card 0 of n1", "#card")


def test_queues_show_use_against_their_bounds(page: Page, api: ClusterApi) -> None:
    queue = docs.queue("research", h20=4)
    queue["spec"] |= {
        "deserved": {"volcano.sh/vgpu-h20": 3},
        "guarantee": {"resource": {"volcano.sh/vgpu-h20": 2}},
    }
    api.put("queues", queue)
    go(page, "queues")
    page.until(
        "[...document.querySelectorAll('main tbody tr')].some(row => row.innerText.includes('\\t3\\t2'))"
    )
    assert as_table(page)[0] == ["vgpu-h20", "1", "4", "3", "2"]
    assert "The queue's cap is used up: 1" in page.text("main")


def test_what_waits_has_its_sentence_and_what_helps(page: Page) -> None:
    go(page, "waiting")
    page.until_text("1 job waits.")
    (row,) = as_table(page)
    assert row[0] == "ml/big"
    assert "The queue's cap is used up" in row[4]
    assert "asks for 4; queue research uses 3 of 4" in row[4]
    assert "ask the tenant's admin for a higher cap" in row[4]


def test_decisions_say_for_whom(page: Page) -> None:
    go(page, "decisions")
    page.until_text("it made room for web/chat")
    assert "Evicted to make room" in page.text("main")


def test_a_job_is_opened_from_what_waits(page: Page) -> None:
    go(page, "waiting")
    page.click("main table a")
    page.until_text("asks for 4; queue research uses 3 of 4")
    assert page.text("#job") == "ml/big"
    assert "waits for cards" in page.text("main table")


def test_a_job_that_is_not_there_is_said_with_what_is_near(page: Page) -> None:
    go(page, "job/ml/bog")
    page.until_text("did you mean big")


def test_cards_are_found_by_who_is_on_them(page: Page) -> None:
    page.choose("#find", "chat")
    page.until_text("1 cards, 1 pods", "#found")
    page.click("#as-table")
    assert [row[:2] for row in as_table(page)] == [["n1", "0"]]


def test_only_ill_cards(page: Page) -> None:
    page.click("#ill")
    page.click("#as-table")
    assert [row[0] for row in as_table(page)] == ["n2"]


# --- without a mouse, without eyes -----------------------------------------------------------------


def test_keys_go_from_card_to_card_and_each_is_spoken(page: Page) -> None:
    page.run("document.querySelector('#map').focus()")
    page.press("ArrowRight")
    page.until_text("Card 0 of n1, h20: 50% of memory given out", "#spoken")
    page.press("ArrowRight")
    page.until_text("Card 1 of n1", "#spoken")
    page.press("End")
    page.until_text("ill: XID 79", "#spoken")
    page.press("Home", "Enter")
    page.until_text("Card 0 of n1", "#card")
    page.until("document.activeElement.id === 'card'")
    page.run("document.querySelector('#map').focus()")
    page.press("Escape")
    page.until("document.querySelector('#card').hidden")


def test_the_table_has_the_figures_of_the_map(page: Page) -> None:
    page.click("#as-table")
    assert as_table(page) == [
        ["n1", "0", "h20", "96 GiB", "48 GiB (50%)", "25%", "25%", "2", "0", "takes new shares"],
        ["n1", "1", "h20", "96 GiB", "0 MiB (0%)", "0%", "0%", "0", "0", "takes new shares"],
        ["n2", "0", "h20", "96 GiB", "0 MiB (0%)", "0%", "0%", "0", "0", "ill: XID 79"],
    ]
    assert page.run("document.querySelector('#map').offsetParent") is None


def test_the_first_tab_key_leads_to_the_content(page: Page) -> None:
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Skip to the content"


def test_focus_goes_to_the_view_that_is_opened_and_stays_through_changes(page: Page, api: ClusterApi) -> None:
    go(page, "waiting")
    page.until("document.activeElement.id === 'main'")
    page.run("document.querySelector('main table a').focus()")
    api.put("podgroups", synthetic.group("new", "ml", "research", docs.verdict("WaitingForCards", "no card")))
    page.until_text("2 jobs wait.")
    assert page.run("document.activeElement.textContent") == "ml/big"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_axe_finds_nothing(browser: Browser, site: Site, locale: str, dark: bool) -> None:
    source = axe()
    with browser.page(locale=locale, dark=dark) as page:
        opened(page, site)
        found: dict[str, Any] = {}
        for view in ("cards", "cards/n1/0", "queues", "waiting", "decisions", "job/ml/big"):
            go(page, view)
            page.until("document.querySelector('main table, #card table, #map') !== null")
            found |= {f"{view}: {one['id']}": one["nodes"] for one in violations(page, source)}
            if view == "cards":
                page.click("#as-table")
                found |= {f"table: {one['id']}": one["nodes"] for one in violations(page, source)}
                page.click("#as-table")
        assert found == {}


def violations(page: Page, source: str) -> list[Any]:
    if not page.run("'axe' in window"):
        # As a person's extension would: the page's own policy lets no script in.
        page.call("Runtime.evaluate", expression=source)
    told: list[Any] = page.run(
        "axe.run(document).then(found => found.violations.map(one =>"
        " ({id: one.id, nodes: one.nodes.slice(0, 3).map(node => node.failureSummary + node.html)})))"
    )
    return told


# --- live ------------------------------------------------------------------------------------------


def test_a_pod_that_comes_and_goes_is_seen_without_a_reload(page: Page, api: ClusterApi) -> None:
    page.click("#as-table")
    page.run("window.kept = true")
    api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), SHARE))
    page.until("document.querySelectorAll('main tbody tr')[1].innerText.includes('24 GiB (25%)')")
    api.remove("pods", "new-0", "ml")
    page.until("document.querySelectorAll('main tbody tr')[1].innerText.includes('0 MiB (0%)')")
    assert page.run("window.kept") is True


def test_an_open_card_follows(page: Page, api: ClusterApi) -> None:
    go(page, "cards/n1/1")
    page.until_text("None of the pods that you may see is on this card.", "#card")
    api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), SHARE))
    page.until_text("ml/new-0", "#card")


def test_a_new_node_is_there_at_once(page: Page, api: ClusterApi) -> None:
    api.put("nodes", synthetic.node_of("n3", (docs.card("GPU-9"),)))
    page.until("document.querySelector('canvas').getAttribute('aria-label').startsWith('4 cards on 3 nodes')")


def test_the_count_in_the_head_follows(page: Page, api: ClusterApi) -> None:
    api.remove("podgroups", "big", "ml")
    page.until("document.querySelector('nav .count') === null")


def test_a_lost_page_server_is_told_and_comes_back(browser: Browser, api: ClusterApi, site: Site) -> None:
    label = "document.querySelector('canvas').getAttribute('aria-label')"
    with browser.page() as page:
        opened(page, site)
        page.until(f"{label}.startsWith('3 cards')")
        site.stop()
        page.until_text("The connection to the page's server is lost", "#banner")
        assert page.text("#connection") == "connection lost"
        assert page.run(f"{label}.startsWith('3 cards')")
        api.put("nodes", synthetic.node_of("n3", (docs.card("GPU-9"),)))
        site.start()
        page.until(READ)
        page.until(f"{label}.startsWith('4 cards')")


def test_an_api_server_that_is_away_is_told_and_comes_back(page: Page, api: ClusterApi) -> None:
    api.go_away()
    page.until_text("are not up to date", "#banner")
    api.come_back()
    page.until("document.querySelector('#banner').textContent === ''")


def test_a_token_that_ends_leads_to_the_beginning(page: Page, api: ClusterApi) -> None:
    api.accounts.clear()
    api.end_watches()
    page.until_text("Use the link that the command has printed", "main")
    assert "train-0" not in page.text()


# --- the ML team and the tenant's admin ------------------------------------------------------------


@pytest.fixture
def tenant(browser: Browser, api: ClusterApi, tmp_path: Path) -> Iterator[Page]:
    with local_site(api, tmp_path, token="tenant-token") as site, browser.page() as found:
        yield opened(found, site)


def test_a_tenant_sees_others_as_a_number(tenant: Page) -> None:
    go(tenant, "cards/n1/0")
    tenant.until_text("1 pod of others is on it too. You may not see its name.", "#card")
    assert "ml/train-0" in tenant.text("#card")
    assert "at least 24 GiB / 96 GiB" in tenant.text("#card")
    tenant.click("#as-table")
    assert as_table(tenant)[0][4] == "at least 24 GiB (25%)"
    assert as_table(tenant)[0][7:9] == ["1", "1"]
    assert "You may list pods in ml only" in tenant.text(".notes")


@pytest.mark.parametrize("view", ["cards", "cards/n1/0", "queues", "waiting", "decisions"])
def test_no_name_of_another_tenants_pod_is_anywhere(tenant: Page, view: str) -> None:
    go(tenant, view)
    assert "chat-0" not in tenant.run("document.documentElement.outerHTML")
    assert "chat-0" not in tenant.run("fetch('/api/state').then(answer => answer.text())")


def test_a_tenant_is_told_that_queues_are_partial(tenant: Page) -> None:
    go(tenant, "queues")
    tenant.until_text("You may not see all pods.")


def test_a_tenant_may_not_open_anothers_job(tenant: Page) -> None:
    go(tenant, "job/web/chat")
    tenant.until_text("cannot list resource", "main")


def test_without_any_right_the_page_says_what_is_missing(
    browser: Browser, api: ClusterApi, tmp_path: Path
) -> None:
    with local_site(api, tmp_path, token="nobody-token") as site, browser.page() as page:
        opened(page, site)
        page.until_text("You may not list nodes", "main")
        go(page, "queues")
        page.until_text("You may not list queues", "main")
        go(page, "waiting")
        page.until_text("You may list no PodGroups", "main")


def test_a_cluster_without_agents_says_so(browser: Browser, tmp_path: Path) -> None:
    with cluster_api() as api, local_site(api, tmp_path) as site, browser.page() as page:
        opened(page, site)
        page.until_text("No node reports cards", "main")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomers_question_is_answered_by_one_look(page: Page, api: ClusterApi, question: str) -> None:
    answers = QUESTIONS[question]
    api.put("queues", docs.queue("serving", state="Closed", h20=8))
    go(page, answers.view)
    page.until_text(answers.shows)


# --- languages and colours -------------------------------------------------------------------------


def test_chinese_is_the_browsers_choice(browser: Browser, site: Site) -> None:
    with browser.page(locale="zh-CN") as page:
        opened(page, site, "waiting")
        page.until_text("有 1 个作业在等待。")
        assert page.run("document.documentElement.lang") == "zh-Hans"
        assert "队列配额已用完" in page.text("main")
        assert "asks for 4; queue research uses 3 of 4" in page.text("main")


def test_another_language_is_chosen_and_remembered(page: Page) -> None:
    page.choose("#language", "zh-Hans")
    page.until_text("队列", "nav")
    page.reload()
    page.until_text("等待中", "nav")


def test_figures_stay_right_when_the_map_is_laid_out_again(page: Page, api: ClusterApi) -> None:
    api.put("pods", synthetic.pod("new-0", ("ml", "research"), ("n1", "GPU-2"), SHARE))
    go(page, "cards/n1/1")
    page.until_text("ml/new-0", "#card")
    page.call("Emulation.setDeviceMetricsOverride", width=900, height=800, deviceScaleFactor=1, mobile=False)
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    page.click("#as-table")
    assert as_table(page)[1][4] == "24 GiB (25%)"


def test_colours_follow_the_system_or_the_choice(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.run(paper) == "rgb(255, 255, 255)"
    page.colours(dark=True)
    page.until(f"{paper} === 'rgb(16, 22, 28)'")
    page.choose("#theme", "light")
    page.until(f"{paper} === 'rgb(255, 255, 255)'")


def test_every_text_comes_from_the_tables(browser: Browser, api: ClusterApi, tmp_path: Path) -> None:
    static = tmp_path / "static"
    shutil.copytree(STATIC, static)
    path = static / "lang" / "en.json"
    marked = {key: f"⟦{text}⟧" for key, text in json.loads(path.read_text()).items()}
    path.write_text(json.dumps(marked))
    with local_site(api, tmp_path, static=static) as site, browser.page() as page:
        opened(page, site)
        for view in ("cards", "cards/n1/0", "queues", "waiting", "decisions", "job/ml/big"):
            go(page, view)
            page.until("document.querySelector('main table, #map') !== null")
            texts = page.run(
                "(() => { const walk = document.createTreeWalker(document.body, 4), found = [];"
                " while (walk.nextNode()) { const one = walk.currentNode;"
                " if (!one.parentElement.closest('[lang=en], noscript, option[lang], code, script'))"
                " found.push(one.textContent); } return found })()"
            )
            rest = " ".join(re.sub("⟦[^⟦]*⟧", "", re.sub("⟦[^⟦⟧]*⟧", "", text)) for text in texts)
            assert set(re.findall(r"[A-Za-z]{3,}", rest)) <= DATA, view


DATA = {
    "egpu",
    "operator",
    "train",
    "chat",
    "web",
    "main",
    "research",
    "serving",
    "vgpu",
    "memory",
    "cores",
    "GiB",
    "MiB",
}
DATA |= {"UUID", "XID", "big", "PodGroup", "ago", "days", "made", "room", "for"}
"""Words of the small cluster itself, of units and of ``Intl``."""


def test_a_narrow_screen_needs_no_scrolling_sideways(browser: Browser, site: Site) -> None:
    with browser.page(size=(360, 700)) as page:
        opened(page, site)
        for view in ("cards", "cards/n1/0", "queues", "waiting", "decisions"):
            go(page, view)
            assert page.run("document.documentElement.scrollWidth") <= 360, view


# --- hostile names ---------------------------------------------------------------------------------

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def test_markup_in_texts_of_others_is_text(page: Page, api: ClusterApi) -> None:
    api.put("podgroups", synthetic.group("evil", "ml", "research", docs.verdict("WaitingForCards", MARKUP)))
    api.put("podgroups", synthetic.group("worse", "ml", "research", docs.verdict(MARKUP, MARKUP)))
    api.put("nodes", synthetic.node_of("n4", (docs.card("GPU-8"),), problem=MARKUP))
    at = "2026-01-01T00:00:20.000000Z"
    api.put("events", synthetic.event("e2", f"ml/{MARKUP}", (MARKUP, MARKUP), at))
    queue = docs.queue("research", state=MARKUP)
    queue["spec"]["capability"] = {f"volcano.sh/vgpu-{MARKUP}": 1}
    api.put("queues", queue)
    for view in ("cards", "cards/n4/0", "queues", "waiting", "decisions", "job/ml/evil"):
        go(page, view)
        if view not in {"cards/n4/0", "queues"}:
            page.until_text("<img src=x onerror=", "body")
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.run("window.hacked") is None


def test_the_address_cannot_bring_markup_in(page: Page) -> None:
    page.run(f"location.hash = '#/job/' + encodeURIComponent({json.dumps(MARKUP)}) + '/x'")
    page.until("document.querySelector('main .bad') !== null")
    assert page.run("document.querySelectorAll('main img').length") == 0


# --- the page of several users ---------------------------------------------------------------------


def sign_in(page: Page, url: str, token: str) -> None:
    page.open(url)
    page.until("document.querySelector('#token') !== null")
    page.run(f"document.querySelector('#token').value = {json.dumps(token)}")
    page.run("document.querySelector('#namespaces').value = 'ml'")
    page.run("document.querySelector('form').requestSubmit()")


def test_users_sign_in_see_their_own_and_sign_out(browser: Browser, api: ClusterApi) -> None:
    with shared_site(api) as site, browser.page() as page:
        sign_in(page, site.url, "tenant-token")
        page.until(READ)
        assert page.text("#user") == "ann"
        go(page, "cards/n1/0")
        page.until_text("1 pod of others", "#card")
        assert page.run("document.cookie") == ""  # no script reads it
        page.click("header button")
        page.until_text("Token of the Kubernetes API", "main")
        assert page.run("fetch('/api/state').then(answer => answer.status)") == 401


def test_a_wrong_token_is_told(browser: Browser, api: ClusterApi) -> None:
    with shared_site(api) as site, browser.page() as page:
        sign_in(page, site.url, "wrong")
        page.until_text("the API server does not take this token", "[role=alert]")
        assert page.run("document.querySelector('#token').value") == ""


def test_two_users_in_two_browsers_see_different_names(browser: Browser, api: ClusterApi) -> None:
    api.accounts["web-token"] = Account("eve", {"web"})
    with shared_site(api) as site, browser.page() as one, browser.page() as other:
        sign_in(one, site.url, "tenant-token")
        other.open(site.url)
        other.until("document.querySelector('#token') !== null")
        other.run("document.querySelector('#token').value = 'web-token'")
        other.run("document.querySelector('#namespaces').value = 'web'")
        other.run("document.querySelector('form').requestSubmit()")
        for page, own, foreign in ((one, "ml/train-0", "chat-0"), (other, "web/chat-0", "train-0")):
            page.until(READ)
            go(page, "cards/n1/0")
            page.until_text(own, "#card")
            assert foreign not in page.text()


# --- size ------------------------------------------------------------------------------------------


def test_eight_thousand_cards_are_drawn(browser: Browser, tmp_path: Path) -> None:
    with cluster_api() as api:
        synthetic.fill(api, nodes=1000, sharers=0.5)
        with local_site(api, tmp_path) as site, browser.page() as page:
            page.open(site.link)
            label = "document.querySelector('canvas')?.getAttribute('aria-label')"
            page.until(f"{label}?.startsWith('8,000 cards on 1,000 nodes')", timeout_s=60)
            page.until(READ, timeout_s=60)
            page.run("document.querySelector('#map').focus()")
            page.press("End")
            page.until_text("Card 7 of l40s-node-", "#spoken")
            assert page.run("document.querySelector('#map').scrollTop") > 0
            page.click("#as-table")
            assert len(as_table(page)) == 100
            assert page.complaints() == []
