"""Random rules between pods, as specs write them. Node labels: the hostname, ``zone`` and ``rack``."""

import random
from typing import Any, Final

Json = dict[str, Any]
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME: Final = "kubernetes.io/hostname"
KEYS = [HOSTNAME, HOSTNAME, "zone", "zone", "rack"]


def _selector(rng: random.Random) -> Json:
    if rng.random() < 0.1:
        return {"matchExpressions": [{"key": "app", "operator": rng.choice(["Exists", "DoesNotExist"])}]}
    if rng.random() < 0.05:
        return {}
    return {"matchLabels": {"app": rng.choice(["web", "web", "db"])}}


def _term(rng: random.Random) -> Json:
    term: Json = {"topologyKey": rng.choice(KEYS), "labelSelector": _selector(rng)}
    more = rng.random()
    if more < 0.1:
        term["namespaces"] = rng.choice([["other"], ["default", "other"]])
    elif more < 0.2:
        term["namespaceSelector"] = rng.choice([{}, {"matchLabels": {"team": "b"}}])
    elif more < 0.3:
        term["matchLabelKeys"] = ["version"]
    return term


def _spread(rng: random.Random) -> Json:
    rule: Json = {
        "topologyKey": rng.choice(KEYS),
        "labelSelector": _selector(rng),
        "maxSkew": rng.choice([1, 1, 2]),
        "whenUnsatisfiable": "DoNotSchedule",
    }
    if rng.random() < 0.2:
        rule["minDomains"] = rng.randint(1, 4)
    if rng.random() < 0.2:
        rule["nodeAffinityPolicy"] = "Ignore"
    if rng.random() < 0.2:
        rule["nodeTaintsPolicy"] = "Honor"
    if rng.random() < 0.1:
        rule["matchLabelKeys"] = ["version"]
    return rule


def rules(rng: random.Random, likely: float) -> Json:
    """Part of a pod's spec: each kind of rule with about this likelihood."""
    spec: Json = {}
    affinity: Json = {}
    if rng.random() < likely:
        affinity["podAntiAffinity"] = {REQUIRED: [_term(rng) for _ in range(rng.choice([1, 1, 2]))]}
    if rng.random() < likely * 0.6:
        affinity["podAffinity"] = {REQUIRED: [_term(rng) for _ in range(rng.choice([1, 1, 2]))]}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < likely:
        found = [_spread(rng) for _ in range(rng.choice([1, 1, 2]))]
        spec["topologySpreadConstraints"] = list({rule["topologyKey"]: rule for rule in found}.values())
    return spec


def labels(rng: random.Random) -> dict[str, str]:
    """Labels of a pod, which these rules may select."""
    found = {"app": rng.choice(["web", "web", "db"])} if rng.random() < 0.9 else {}
    return found | ({"version": rng.choice("12")} if rng.random() < 0.5 else {})
