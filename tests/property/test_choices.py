"""Gangs that take any of two models, against brute force: the first of the list that fits by itself.

Alike gangs on small random clusters. Brute force asks of each model alone whether the gang has a place within
the caps and without that any other goes. A choice is made if and only if some model has one, or others go for
it, and it is the first such model in the order of the user, the one that stands first of all.
"""

import random
from collections import Counter
from dataclasses import replace

import seeds
from property import brute_search as search
from property import generate
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import AskOption, CardAsk, Pod, PodPhase, Snapshot
from vc_egpu.core.model.policy import Policy

NOW = 2000.0


def _of_model(ask: CardAsk, model: str) -> CardAsk:
    """The same part of a card of this model."""
    part = ask.memory_mib / generate.MEMORY[ask.model]
    return replace(ask, model=model, memory_mib=max(1, int(part * generate.MEMORY[model])))


def _open(pod: Pod, models: list[str]) -> Pod:
    options = tuple(
        AskOption(model, tuple(_of_model(ask, model) for ask in pod.shape.asks)) for model in models
    )
    return replace(pod, shape=replace(pod.shape, asks=(), options=options))


def _typed(pod: Pod, model: str) -> Pod:
    shape = pod.shape.as_option(model)
    assert shape is not None
    return replace(pod, shape=replace(shape, options=(), choice=""))


def _fits(snapshot: Snapshot, key: str, members: list[Pod], model: str) -> bool:
    typed = [_typed(pod, model) for pod in members]
    known = replace(snapshot, pods={**snapshot.pods, **{pod.uid: pod for pod in typed}}, index=None)
    return search.placeable(known, known.gangs[key], typed)


def test_the_first_model_that_fits_is_chosen(oracle_cases: int) -> None:
    seen = Counter[str]()
    for seed in seeds.fresh(oracle_cases // 4):
        case, rng = generate.case(seed), random.Random(f"choices {seed}")
        key = case.asking[0]
        members = [
            pod for pod in case.snapshot.pods.values() if pod.gang == key and pod.phase is PodPhase.GATED
        ]
        asks = [ask for pod in members for ask in pod.shape.asks]
        if not case.alike[key] or not asks or any(ask.native for ask in asks):
            continue
        models = rng.sample(sorted(generate.MEMORY), k=2)
        standing = rng.choice(["", *models])
        snapshot = replace(
            case.snapshot,
            # Brute force knows nothing of what is kept for queues.
            queues={name: replace(q, guarantee={}) for name, q in case.snapshot.queues.items()},
            pods={**case.snapshot.pods, **{pod.uid: _open(pod, models) for pod in members}},
            gangs={**case.snapshot.gangs, key: replace(case.snapshot.gangs[key], choice=standing)},
            index=None,
        )
        members = [snapshot.pods[pod.uid] for pod in members]
        plan = decide(snapshot, Policy(), NOW, only=[key])
        order = sorted(models, key=lambda model: model != standing)
        wanted = next((model for model in order if _fits(snapshot, key, members, model)), "")
        where = f"seed {seed}: {models}, {standing or 'nothing'} stands: {plan.verdicts[key].message}"
        assert not plan.admissions, f"{where}: no pod of it was made with a model"
        chosen = plan.choices.get(key, standing if "made again" in plan.verdicts[key].message else "")
        seen["asked"] += 1
        if wanted:
            seen["first" if wanted == models[0] else "second"] += 1
            assert chosen == wanted, where
        elif chosen:
            seen["others go"] += 1
            alone = {uid: _typed(pod, chosen) for uid, pod in snapshot.pods.items() if pod.gang == key}
            alone = {uid: pod for uid, pod in alone.items() if pod.phase is PodPhase.GATED}
            typed = replace(snapshot, pods={**snapshot.pods, **alone}, index=None)
            made = decide(typed, Policy(), NOW, only=[key])
            assert made.admissions, f"{where}: with {chosen} alone it gets no room"
        else:
            seen["none"] += 1
    if seen["asked"] > 100:
        assert min(seen["first"], seen["second"], seen["none"]) >= 5, seen


def test_a_gang_that_names_one_model_is_decided_as_before(oracle_cases: int) -> None:
    """With one option alone the choice changes nothing but that the pods are made again."""
    for seed in seeds.fresh(oracle_cases // 16):
        case = generate.case(seed)
        key = case.asking[0]
        members = [p for p in case.snapshot.pods.values() if p.gang == key and p.phase is PodPhase.GATED]
        models = {ask.model for pod in members for ask in pod.shape.asks}
        if len(models) != 1 or any(ask.native for pod in members for ask in pod.shape.asks):
            continue
        (model,) = models
        made = {
            pod.uid: replace(
                pod,
                shape=replace(pod.shape, options=(AskOption(model, pod.shape.asks),), choice=model)
                if pod.shape.asks
                else pod.shape,
            )
            for pod in members
        }
        snapshot = replace(case.snapshot, pods={**case.snapshot.pods, **made}, index=None)
        one, two = (decide(world, Policy(), NOW, only=[key]) for world in (case.snapshot, snapshot))
        plain = [replace(entry, choice="") for entry in two.admissions]
        assert [*one.admissions] == plain, f"seed {seed}"
        assert one.verdicts[key] == two.verdicts[key], f"seed {seed}"
