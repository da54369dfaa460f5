"""What the page keeps of a PodGroup still says whose it is: a Job's gang has one on every real cluster."""

from unit.cli import documents as docs
from unit.page import synthetic
from unit.page.cluster_api import ClusterApi
from unit.page.conftest import Until
from unit.page.serving import Client
from unit.page.test_local import is_read


def test_a_card_shows_the_pod_of_a_gang_that_a_job_owns(
    api: ClusterApi, client: Client, until: Until
) -> None:
    owned = synthetic.group(
        "train", "ml", "research", docs.verdict("Admitted", "all members have their cards")
    )
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "train",
        "uid": "j",
        "controller": True,
    }
    owned["metadata"]["ownerReferences"] = [job]
    api.put("podgroups", owned)
    until(lambda: is_read(client))
    until(lambda: client.get("/api/card?node=n1&index=0").status == 200)
    assert b"train-0" in client.get("/api/card?node=n1&index=0").data
