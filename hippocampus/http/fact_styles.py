"""The routes of an app's styles: which keys of facts hold one value, and which hold many side by side."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from hippocampus.fact_keys import FactStyle
from hippocampus.facts import KeyStyle
from hippocampus.http.facts import Ledger
from hippocampus.http.memory import PageLimit
from hippocampus.records import FactType
from pulse.http import problems
from pulse.http.bodies import ExactRoute, reply
from pulse.http.cursors import Cursor
from pulse.http.roles import require
from pulse.http.schemas import AppName, Body, PathName

router = APIRouter(
    prefix="/v1/apps/{app_name}/fact-styles",
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


class StyleInput(Body):
    """How many values a key holds."""

    style: FactStyle
    model_config = ConfigDict(json_schema_extra={"examples": [{"style": "collection"}]})


class StyleView(BaseModel):
    """A key's style: `profile` holds one value, `collection` many side by side."""

    app_name: Annotated[str, Field(description="'*' where it stands for every app that says nothing else.")]
    fact_type: FactType
    normal_key: Annotated[str, Field(description="What every spelling of the key has in common.")]
    style: FactStyle

    @classmethod
    def of(cls, style: KeyStyle) -> Self:
        """Describe a style."""
        return cls(**{name: getattr(style, name) for name in cls.model_fields})


class StylePageView(BaseModel):
    """A page of styles, by app, type and key."""

    styles: list[StyleView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


class ChangedView(BaseModel):
    """Whether anything was changed."""

    changed: bool


@router.get("", summary="List key styles", dependencies=[require("read")], response_model=StylePageView)
async def list_styles(app_name: AppName, ledger: Ledger, cursor: Cursor, limit: PageLimit = 50) -> Response:
    """List what was said of keys, for the app and for all; every other key goes by the program's own list."""
    place = cursor.read(tuple[str, str, str])
    found = await ledger.list_styles(app_name, limit=limit, after=place)
    last = found[-1] if len(found) == limit else None
    following = None if last is None else cursor.write((last.app_name, last.fact_type, last.normal_key))
    return reply(StylePageView(styles=[StyleView.of(each) for each in found], next_cursor=following))


@router.put(
    "/{fact_type}/{key}",
    summary="Set a key's style",
    dependencies=[require("admin")],
    response_model=StyleView,
    responses=problems.documented(*problems.BODY, problems.INVALID_REQUEST),
)
async def set_style(
    app_name: AppName, fact_type: FactType, key: PathName, body: StyleInput, ledger: Ledger
) -> Response:
    """Let a key, in any spelling, hold one value or many, from the next statement on."""
    return reply(StyleView.of(await ledger.set_style(app_name, fact_type, key, body.style)))


@router.delete(
    "/{fact_type}/{key}",
    summary="Reset a key's style",
    dependencies=[require("admin")],
    response_model=ChangedView,
)
async def reset_style(app_name: AppName, fact_type: FactType, key: PathName, ledger: Ledger) -> Response:
    """Let a key go by what stands for all apps, or by the program's own list, again."""
    return reply(ChangedView(changed=await ledger.reset_style(app_name, fact_type, key)))
