"""The pictures of ``docs/page.md``: a made-up cluster, in both languages and both colours."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from PIL import Image
from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.browser import Browser, Page, chromium
from unit.page.cluster_api import Account, ClusterApi, cluster_api
from unit.page.serving import Site, local_site, shared_site
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

IMAGES = Path(__file__).parents[3] / "docs" / "images"
READ = "document.documentElement.dataset.read === 'yes'"
SIZE = (1180, 700)


def cluster(api: ClusterApi) -> None:
    """A busy one: some twenty nodes, a card that is ill, jobs that wait for a while."""
    synthetic.fill(api, nodes=26, sharers=2.2, seed=11)
    now = datetime.now(UTC)
    for number, (key, stored) in enumerate(list(api.kinds["podgroups"].items())):
        if stored.name.startswith("queued-"):
            since = now - timedelta(minutes=7 * number % 180 + 2)
            again(api, key, since)
    told = (
        ("Preempted", "training leaves h20-node-0002 for serving/chat-12, which is high"),
        ("Admitted", "all 4 members have their cards"),
        ("Suspended", "its memory lies on the host; it comes back when serving/chat-12 ends"),
        ("RolledBack", "the scheduler refused 1 of 4 pods: insufficient memory on a100-node-0009"),
        ("Preempted", "training leaves a100-node-0004 for vision/rank-3, which is high"),
    )
    for number, one in enumerate(told):
        at = (now - timedelta(minutes=3 * number + 1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        about = f"{synthetic.QUEUES[number % 4]}/train-{number + 3}"
        api.put("events", synthetic.event(f"told-{number}", about, one, at))


def busiest(api: ClusterApi) -> str:
    """The address of a card that many pods share, two of them tenants."""
    sharers: dict[tuple[str, str], list[str]] = {}
    for stored in api.kinds["pods"].values():
        if text := orjson.loads(stored.metadata)["metadata"]["annotations"].get(names.CARDS):
            cards = Cards.decode(text)
            sharers.setdefault((cards.node, cards.containers["main"][0].uuid), []).append(stored.namespace)
    mixed = {
        card: spaces for card, spaces in sharers.items() if "research" in spaces and len(set(spaces)) > 1
    }
    node, uuid = max(mixed, key=lambda card: len(mixed[card]))
    return f"cards/{node}/{uuid.rpartition('-')[2]}"


def again(api: ClusterApi, key: tuple[str, str], since: datetime) -> None:
    """A job that waits, as of then."""
    namespace, name = key
    reason, message = (
        ("WaitingForQuota", "asks for 4 vgpu-h20; queue research uses 60 of 62"),
        ("WaitingForCards", "2 of 8 members would find no card: each needs 98304 MiB of an h20"),
        ("WaitingForEviction", "1 gang of queue vision leaves 2 cards"),
    )[int(name.rpartition("-")[2]) % 3]
    said: dict[str, Any] = docs.verdict(reason, message)
    said["lastTransitionTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    api.put("podgroups", synthetic.group(name, namespace, namespace, said, 4))


def take(
    browser: Browser, site: Site, name: str, view: str, *, locale: str = "en-US", dark: bool = False
) -> None:
    with browser.page(locale=locale, dark=dark, size=SIZE) as page:
        page.open(site.link)
        page.until(READ)
        page.run(f"location.hash = '#/{view}'")
        page.until("document.querySelector('main table, #card table, #map') !== null")
        if view.startswith("cards/"):
            page.until("document.querySelector('#card table') !== null")
        keep(page, name)


def keep(page: Page, name: str) -> None:
    page.run("document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => done(1))))")
    page.run("document.activeElement?.blur()")
    path = IMAGES / f"page-{name}.png"
    page.screenshot(path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    """Take all of them."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, cluster_api() as api, chromium() as browser:
        cluster(api)
        card = busiest(api)
        api.accounts["tenant-token"] = Account("ann@example.com", {"research"})
        with local_site(api, Path(folder)) as site:
            take(browser, site, "cards", card)
            take(browser, site, "cards-dark-zh", card, locale="zh-CN", dark=True)
            take(browser, site, "queues", "queues")
            take(browser, site, "waiting", "waiting")
            take(browser, site, "waiting-zh", "waiting", locale="zh-CN")
            take(browser, site, "decisions-dark", "decisions", dark=True)
        with local_site(api, Path(folder), token="tenant-token", namespace="research") as site:
            take(browser, site, "tenant", card)
        with shared_site(api) as site, browser.page(size=(900, 520)) as page:
            page.open(site.url)
            page.until("document.querySelector('#token') !== null")
            keep(page, "sign-in")


if __name__ == "__main__":
    main()
