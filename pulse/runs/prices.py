"""What the calls of models cost, as the operator says; it is used to show costs, and bounds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What `ModelPrices.parse` accepts. A name may contain `:` and `/`, as on many servers.
PRICES_PATTERN = r"^$|^[^=,\s]+=\d+(\.\d+)?/\d+(\.\d+)?(,[^=,\s]+=\d+(\.\d+)?/\d+(\.\d+)?)*$"


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Per million tokens, in the currency of the prices."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """The prices of models by their names; a model that is not named has no known price."""

    currency: str = "USD"
    models: Mapping[str, ModelPrice] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, currency: str) -> ModelPrices:
        """Read ``model=input/output,…``, a text that matches `PRICES_PATTERN`."""
        found = {}
        for each in filter(None, text.split(",")):
            name, _, prices = each.rpartition("=")
            of_input, _, of_output = prices.partition("/")
            found[name] = ModelPrice(float(of_input), float(of_output))
        return cls(currency, found)
