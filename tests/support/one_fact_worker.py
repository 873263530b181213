"""A worker whose model is asked for one short fact of a reflection: ``python -m tests.support.one_fact_worker POOL``.

A small model needs minutes for what the whole schema allows. Everything else is the product's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hippocampus.providers import extraction
from workers import worker


def schema(turns: Sequence[int]) -> dict[str, Any]:
    """The schema of reflections, with exactly one fact that cites one of these turns, and nothing else."""
    fact = extraction.REFLECTION_SCHEMA["properties"]["facts"]["items"]
    properties = {
        **fact["properties"],
        "key": {"type": "string", "minLength": 3, "maxLength": 12},
        "value": {"type": "boolean"},
        "source_turns": {"type": "array", "items": {"enum": list(turns)}, "minItems": 1, "maxItems": 1},
    }
    one = {"type": "array", "items": {**fact, "properties": properties}, "minItems": 1, "maxItems": 1}
    none = {"type": "array", "items": {"type": "null"}, "maxItems": 0}
    return {**extraction.REFLECTION_SCHEMA, "properties": {"facts": one, "insights": none, "instructions": none}}


if __name__ == "__main__":
    extraction.REFLECTION_SCHEMA = schema((1, 2, 3, 4))
    sys.exit(worker.main_worker(sys.argv[1]))
