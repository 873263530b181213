"""The bodies of the routes by which people write."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus.http.fields import Moment
from hippocampus.records import FactType, Importance
from hippocampus.transfer.given_memories import CONTENT_CHARACTERS_MAX
from pulse.http.edge.schemas import WITHOUT_NUL, Body, JsonObject, Name, View

By = Annotated[
    Annotated[str, StringConstraints(max_length=255, pattern=WITHOUT_NUL)] | None,
    Field(description="Who writes it; kept with it."),
]
Content = Annotated[str, StringConstraints(min_length=1, max_length=CONTENT_CHARACTERS_MAX)]


class MemoryInput(Body):
    """A memory that a person writes."""

    content: Content
    name: Annotated[Name | None, Field(description="Writing the same name again replaces the memory.")] = None
    importance: Importance = "high"
    metadata: Annotated[JsonObject, Field(default_factory=dict)]
    occurred_at: Annotated[Moment | None, Field(description="The time that it is about; now by default.")] = None
    by: By = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "She signs as Ann B.", "by": "support"}]})


class FactInput(Body):
    """A fact that a person states."""

    key: Annotated[Name, Field(examples=["home_city"])]
    value: Annotated[Any, Field(description="Any JSON value but null; of a collection, one or a list of several.")]
    fact_type: FactType = "profile"
    since: Annotated[Moment | None, Field(description="Since when it is true; from now on by default.")] = None
    by: By = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "home_city", "value": "Lyon", "by": "support"}]})


class CorrectionInput(Body):
    """What a memory or a fact should say."""

    value: Annotated[Any, Field(description="A text for a memory, any JSON value but null for a fact.")]
    by: By = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "Nice", "by": "ann"}]})


class HandInput(Body):
    """Who retires or confirms."""

    by: By = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"by": "ann"}]})


class EditView(View):
    """What became of a change by hand."""

    kind: Literal["memory", "fact"]
    ids: Annotated[list[uuid.UUID], Field(description="What holds the words now; of a retirement, what was retired.")]
    changed: Annotated[bool, Field(description="False if it was so already.")]
