"""The Job of docs/tutorial.md, at the door: what the page says of it is so."""

import re
from pathlib import Path

import yaml
from unit.webhook.job_reviews import complete, refusal
from unit.webhook.world import NAMESPACE, Json, context
from vc_egpu.volcano.words.names import MANAGED_LABEL

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
TENANTS = [*yaml.safe_load_all((ROOT / "e2e" / "demo" / "yaml" / "tenants.yaml").read_text())]
QUEUES = {tenant["metadata"]["name"]: tenant for tenant in TENANTS if tenant["kind"] == "Queue"}
CONTEXT = context("alice use queues demo-serving", queues=QUEUES)


def job(*, members: int) -> Json:
    """As the page writes it, and as its ``sed`` makes it larger."""
    (text,) = re.findall(r"<<'END'\n(.*?)^END$", PAGE, re.DOTALL | re.MULTILINE)
    found: Json = yaml.safe_load(re.sub(r": 2$", f": {members}", text, flags=re.MULTILINE))
    found["metadata"]["namespace"] = NAMESPACE
    return found


def test_the_job_that_is_too_large_is_refused_in_the_words_of_the_page() -> None:
    assert refusal(job(members=5), CONTEXT) in " ".join(PAGE.split())


def test_the_job_that_fits_the_cap_is_accepted() -> None:
    (task,) = complete(job(members=2), CONTEXT)["spec"]["tasks"]
    assert task["template"]["metadata"]["labels"] == {MANAGED_LABEL: "true"}
