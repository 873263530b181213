"""The bodies of the routes of fact styles."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from hippocampus.facts.keys import FactStyle
from hippocampus.records import FactType
from pulse.http.edge.schemas import Body, NextCursor, View


class StyleInput(Body):
    """How a key holds its values, from the next statement on."""

    style: Annotated[FactStyle, Field(description="'profile': one value; 'collection': many, each a fact of its own.")]
    model_config = ConfigDict(json_schema_extra={"examples": [{"style": "collection"}]})


class StyleView(View):
    """How a key holds its values."""

    app_name: Annotated[str, Field(description="'*' for every app without a style of its own.")]
    fact_type: FactType
    normal_key: Annotated[str, Field(description="The normal form of every spelling of the key.")]
    style: FactStyle


class StylePageView(View):
    """A page of styles, by app, type and key. A key without a style follows the built-in list."""

    styles: list[StyleView]
    next_cursor: NextCursor
