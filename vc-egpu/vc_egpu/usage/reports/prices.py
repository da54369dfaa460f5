"""The operator's prices: what a card-hour of each model costs, how nodes are billed, what shares pay.

A file of YAML::

    currency: EUR
    models:
      h20: {on_demand: 3.20, reserved: 1.90, spot: 1.10}
    nodes:
      "spot-*": spot
      "*": reserved
    rates: {reserved: 1.0, shared: 1.0, low: 0.5, oversold: 0.7, suspended: 0.1, idle: 1.0}

``rates`` multiply the price. A model may have ``rates`` of its own. What is not named has the rate 1, and
suspended time has 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Any, Final

import yaml

from vc_egpu.usage.table.columns import Column

BILLINGS: Final = ("on_demand", "reserved", "spot")
CATEGORIES: Final = ("reserved", "shared", "low", "oversold", "idle")
_RATES: Final = (*CATEGORIES, "suspended")
_LONGEST_FILE: Final = 1 << 20

PRICE_COLUMNS: Final = (
    *(Column(name, "VARCHAR") for name in ("model", "billing", "category")),
    *(Column(name) for name in ("list_price", "contracted_price", "rate", "suspended_rate")),
)
BILLING_COLUMNS: Final = tuple(Column(name, "VARCHAR") for name in ("cluster", "node", "billing"))


class PricesError(ValueError):
    """The file of prices cannot be used; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a card-hour in one currency."""

    currency: str = "USD"
    models: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By model and billing."""
    nodes: Sequence[tuple[str, str]] = ()
    """Pattern of a node's name, and its billing; the first that fits counts."""
    rates: Mapping[str, float] = field(default_factory=dict)
    model_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def billing(self, node: str) -> str:
        """How a node is billed."""
        return next((billing for pattern, billing in self.nodes if fnmatchcase(node, pattern)), BILLINGS[0])

    def rate(self, model: str, kind: str) -> float:
        """What a kind of time pays, times the price."""
        default = 0.0 if kind == "suspended" else 1.0
        return self.model_rates.get(model, {}).get(kind, self.rates.get(kind, default))

    def rows(self, models: Iterable[str]) -> list[dict[str, Any]]:
        """The table ``prices`` for these models. The list price is the one on demand, where there is one."""
        rows = []
        for model in models:
            prices = self.models.get(model, {})
            for billing in BILLINGS:
                contracted = prices.get(billing, prices.get(BILLINGS[0], 0.0))
                rows += [
                    {
                        "model": model,
                        "billing": billing,
                        "category": category,
                        "list_price": prices.get(BILLINGS[0], contracted),
                        "contracted_price": contracted,
                        "rate": self.rate(model, category),
                        "suspended_rate": self.rate(model, "suspended"),
                    }
                    for category in CATEGORIES
                ]
        return rows


def read(path: Path) -> Prices:
    """The prices in a file."""
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise PricesError(f"{path} is too long for a file of prices")
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PricesError(f"{path} cannot be read: {error}") from None
    try:
        return parse(document)
    except PricesError as error:
        raise PricesError(f"{path}: {error}") from None


def parse(document: Any) -> Prices:
    """The prices in a document; each fault is told with its place."""
    whole = _mapping(document, "the file", ("currency", "models", "nodes", "rates"))
    models: dict[str, dict[str, float]] = {}
    model_rates: dict[str, dict[str, float]] = {}
    for model, entry in _mapping(whole.get("models", {}), "models").items():
        named = _mapping(entry, f"models.{model}", (*BILLINGS, "rates"))
        models[model] = _numbers({k: v for k, v in named.items() if k != "rates"}, f"models.{model}")
        model_rates[model] = _rates(named.get("rates", {}), f"models.{model}.rates")
    nodes = []
    for pattern, billing in _mapping(whole.get("nodes", {}), "nodes").items():
        if billing not in BILLINGS:
            raise PricesError(f"nodes.{pattern} is {billing!r}: it may be {', '.join(BILLINGS)}")
        nodes.append((pattern, str(billing)))
    currency = whole.get("currency", "USD")
    if not (isinstance(currency, str) and len(currency) == 3 and currency.isalpha() and currency.isupper()):
        raise PricesError(f"currency is {currency!r}: it is three letters, such as EUR")
    return Prices(currency, models, tuple(nodes), _rates(whole.get("rates", {}), "rates"), model_rates)


def _rates(document: Any, place: str) -> dict[str, float]:
    return _numbers(_mapping(document, place, _RATES), place)


def _mapping(document: Any, place: str, allowed: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise PricesError(f"{place} is no mapping of names")
    for key in document:
        if allowed and key not in allowed:
            raise PricesError(f"{place} has {key!r}: it may have {', '.join(allowed)}")
    return document


def _numbers(document: Mapping[str, Any], place: str) -> dict[str, float]:
    for key, value in document.items():
        fine = (
            isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0
        )
        if not fine:
            raise PricesError(f"{place}.{key} is {value!r}: it is a number from 0 on")
    return {key: float(value) for key, value in document.items()}
