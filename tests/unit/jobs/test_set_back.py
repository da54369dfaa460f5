"""An API server whose history was set back, as by a restore of etcd: what it tells then is how things are."""

from typing import Any

from vc_egpu.jobs.known.latest import Latest
from vc_egpu.kube import Change, ChangeKind

Json = dict[str, Any]
KEY = ("team", "train")


def job(version: int, uid: str = "u") -> Json:
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": uid, "resourceVersion": str(version)},
        "version": version,
    }


def held() -> Latest[int]:
    cache: Latest[int] = Latest(lambda document: document["version"])
    cache.watch(Change(ChangeKind.ADDED, job(300)))
    cache.watch(Change(ChangeKind.MODIFIED, job(500), job(300)))
    return cache


def test_an_older_version_counts_once_the_watch_went_back_to_it() -> None:
    cache = held()
    cache.put(job(510))
    cache.watch(Change(ChangeKind.MODIFIED, job(300), job(500)))
    assert cache.get(KEY) == 300
    cache.watch(Change(ChangeKind.MODIFIED, job(301), job(300)))
    assert cache.get(KEY) == 301


def test_what_is_there_again_after_its_end_is_there() -> None:
    cache = held()
    cache.watch(Change(ChangeKind.DELETED, job(501), job(500)))
    cache.put(job(500))
    assert cache.get(KEY) is None, "the answer to a write, late"
    cache.watch(Change(ChangeKind.ADDED, job(300)))
    assert cache.get(KEY) == 300


def test_a_watch_that_is_late_brings_nothing_back() -> None:
    cache = held()
    cache.put(job(510))
    cache.watch(Change(ChangeKind.MODIFIED, job(505), job(500)))
    assert cache.get(KEY) == 510
    cache.gone(KEY, "u")
    cache.watch(Change(ChangeKind.MODIFIED, job(510), job(505)))
    assert cache.get(KEY) is None
    cache.watch(Change(ChangeKind.DELETED, job(511), job(510)))
    cache.gone(KEY, "u")
    assert cache.get(KEY) is None
