"""Words of the scenario language as values: ``key=value`` options, amounts, and what a pod asks for."""

from vc_egpu.core.environments.needs import NO_NEEDS, Needs
from vc_egpu.core.model.cluster import AskOption, CardAsk, CardId, PodShape, Resources, Toleration
from vc_egpu.core.model.neighbours import Neighbours, Spread
from vc_egpu.core.profiles.table import Traits
from vc_egpu.volcano.needs import text

MODELS = {"h20": 98304, "t4": 15360, "a100-80g": 81920}
"""Memory of one card in MiB."""
_DOMAINS = ("", "@zone", "@rack")
"""What rules between pods speak of: nodes, and values of these node labels."""


def mib(text: str) -> int:
    """``60Gi`` or a number of MiB."""
    return int(text[:-2]) * 1024 if text.endswith("Gi") else int(text)


def options(words: list[str]) -> dict[str, str]:
    """``key=value`` words."""
    return dict(word.split("=", 1) for word in words)


def minimums(words: list[str]) -> dict[str, int]:
    """Of each task that has a ``min-task=task:count``."""
    specs = [word.removeprefix("min-task=").split(":") for word in words if word.startswith("min-task=")]
    return {task: int(count) for task, count in specs}


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    """``key:value`` words with ``;`` between."""
    return tuple((key, value) for key, _, value in (part.partition(":") for part in text.split(";")) if key)


def traits(options: dict[str, str]) -> Traits:
    """What rules of placement ask about a gang."""
    earlier = tuple(word for word in options.get("earlier", "").split(";") if word)
    return Traits(options.get("owner", ""), pairs(options.get("has", "")), earlier)


def _ask(options: dict[str, str], model: str, cards: int) -> CardAsk:
    native, whole, card_mib = "native" in options, "whole" in options, MODELS[model]
    alone = native or whole or "memory" not in options
    memory = options.get("memory", "")
    part = card_mib * int(memory[:-1]) // 100 if memory.endswith("%") else mib(memory or "0")
    return CardAsk(
        container="main",
        model=model,
        cards=cards,
        memory_mib=card_mib if alone else part,
        cores_percent=100 if alone else int(options.get("cores", "0")),
        native=native,
        whole=alone and not native,
        spill=("spill" in options or "swap" in options) and not alone,
        swap="swap" in options,
        host_limit_mib=mib(options["limit"]) if "limit" in options else None,
    )


def shape(options: dict[str, str]) -> PodShape:
    """What one pod asks for, and where it may go."""
    asks = [_ask(options, model, int(options[model])) for model in MODELS if model in options]
    models = [model for model in options.get("any", "").split(";") if model]
    label, _, value = options.get("node", "").partition(":")
    return PodShape(
        asks=tuple(asks),
        requests=Resources(
            cpu_milli=int(float(options.get("cpu", "1")) * 1000),
            memory_bytes=mib(options.get("ram", "1Gi")) << 20,
        ),
        node_selector=((label, value),) if label else (),
        tolerations=(Toleration(options["tolerate"], "Exists"),) if "tolerate" in options else (),
        host_ports=(("", "TCP", int(options["port"])),) if "port" in options else (),
        avoid_cards=frozenset(CardId(c) for c in options.get("avoid-cards", "").split(";") if c),
        use_cards=frozenset(CardId(c) for c in options.get("use-cards", "").split(";") if c),
        card_policy=options.get("card-policy", ""),
        node_policy=options.get("node-policy", ""),
        neighbours=neighbours(options),
        runtime_s=float(options["runtime"]) if "runtime" in options else None,
        options=tuple(
            AskOption(
                model, (_ask(options, model, int(options.get("cards", "1"))),), _own_needs(options, model)
            )
            for model in models
        ),
        mixes="mixes" in options,
        takes_soonest="soonest" in options,
        needs=_needs(options),
    )


def _needs(options: dict[str, str]) -> Needs:
    presumed = "presumes" in options
    written = options.get("presumes", options.get("needs", ""))
    return Needs(written, (text.read(written),), presumed) if written else NO_NEEDS


def _own_needs(options: dict[str, str], model: str) -> Needs | None:
    """Of one option: ``needs-h20=cuda>=12``."""
    if not any(word.startswith("needs-") for word in options):
        return None
    written = options.get(f"needs-{model}", "")
    return Needs(written, (text.read(written),)) if written else NO_NEEDS


def neighbours(options: dict[str, str]) -> Neighbours:
    """The rules of a pod with the labels ``is=``: whom it avoids and needs, with what it is spread."""
    avoids = _labels(options, "apart-from")
    needs = tuple(f"&{label}" for label in _labels(options, "near"))
    spreads = tuple(_spread(text) for text in options.get("spread", "").split(";") if text)
    own = {*_labels(options, "is"), *(one.rule.removeprefix("~") for one in spreads)}
    kinds = {f"{sort}{label}{of}" for label in own for sort in ("", "&", "~") for of in _DOMAINS}
    return Neighbours(
        avoids, spreads, tuple(sorted(kinds)), needs, bool(needs) and all(rule in kinds for rule in needs)
    )


def _labels(options: dict[str, str], word: str) -> tuple[str, ...]:
    return tuple(sorted(label for label in options.get(word, "").split(";") if label))


def _spread(text: str) -> Spread:
    rule, _, skew = text.partition(":")
    return Spread(f"~{rule}", int(skew or 1))
