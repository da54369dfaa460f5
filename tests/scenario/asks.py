"""Words of the scenario language as values: ``key=value`` options, amounts, and what a pod asks for."""

from vc_egpu.core.model.cluster import CardAsk, CardId, PodShape, Resources, Toleration
from vc_egpu.core.model.neighbours import Neighbours, Spread

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


def shape(options: dict[str, str]) -> PodShape:
    """What one pod asks for, and where it may go."""
    asks = []
    for model, memory in MODELS.items():
        if model not in options:
            continue
        native, whole = "native" in options, "whole" in options
        alone = native or whole or "memory" not in options
        asks.append(
            CardAsk(
                container="main",
                model=model,
                cards=int(options[model]),
                memory_mib=memory if alone else mib(options["memory"]),
                cores_percent=100 if alone else int(options.get("cores", "0")),
                native=native,
                whole=alone and not native,
                spill="spill" in options and not alone,
                host_limit_mib=mib(options["limit"]) if "limit" in options else None,
            )
        )
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
    )


def neighbours(options: dict[str, str]) -> Neighbours:
    """The rules of a pod with the labels ``is=``: whom it avoids, needs, and with which label it is spread."""
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
