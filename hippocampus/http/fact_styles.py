"""The routes of memory styles: which keys of an app's facts hold one value, and which hold many side by side."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from hippocampus.facts.keys import FactStyle
from hippocampus.facts.ledger import KeyStyle
from hippocampus.http.facts import Ledger
from hippocampus.http.memory import PageLimit
from hippocampus.records import FactType
from pulse.http.edge import problems
from pulse.http.edge.bodies import ExactRoute, reply
from pulse.http.edge.cursors import Cursor
from pulse.http.edge.roles import require
from pulse.http.routes.schemas import AppName, Body, PathName

router = APIRouter(
    prefix="/v1/apps/{app_name}/fact-styles",
    tags=["memory"],
    route_class=ExactRoute,
    responses=problems.documented(*problems.COMMON, problems.INVALID_REQUEST),
)


class StyleInput(Body):
    """How a key holds its values from the next statement on."""

    style: Annotated[FactStyle, Field(description="'profile': one value; 'collection': many, each a fact of its own.")]
    model_config = ConfigDict(json_schema_extra={"examples": [{"style": "collection"}]})


class StyleView(BaseModel):
    """How a key holds its values."""

    app_name: Annotated[str, Field(description="'*': of every app that says nothing else.")]
    fact_type: FactType
    normal_key: Annotated[str, Field(description="The form that every spelling of the key has.")]
    style: FactStyle

    @classmethod
    def of(cls, style: KeyStyle) -> Self:
        """Describe a key's style."""
        return cls(**{name: getattr(style, name) for name in cls.model_fields})


class StylePageView(BaseModel):
    """A page of styles, by app, type and key. A key without one goes by the program's own list."""

    styles: list[StyleView]
    next_cursor: Annotated[str | None, Field(description="Where the next page starts; null after the last.")]


@router.get("", summary="List styles of keys", dependencies=[require("read")], response_model=StylePageView)
async def list_styles(app_name: AppName, ledger: Ledger, cursor: Cursor, limit: PageLimit = 50) -> Response:
    """List what was said of keys, for this app and for every app."""
    found = await ledger.list_styles(app_name, limit=limit, after=cursor.read(tuple[str, str, str]))
    following = cursor.following(found, limit, lambda each: (each.app_name, each.fact_type, each.normal_key))
    return reply(StylePageView(styles=[StyleView.of(each) for each in found], next_cursor=following))


@router.put(
    "/{fact_type}/{key}",
    summary="Set the style of a key",
    dependencies=[require("admin")],
    response_model=StyleView,
    responses=problems.documented(*problems.BODY),
)
async def set_style(
    app_name: AppName, fact_type: FactType, key: PathName, body: StyleInput, ledger: Ledger
) -> Response:
    """Let a key, in any spelling, hold one value or many. What is stored stays as it is."""
    return reply(StyleView.of(await ledger.set_style(app_name, fact_type, key, body.style)))


@router.delete(
    "/{fact_type}/{key}",
    summary="Take a style back",
    dependencies=[require("admin")],
    status_code=204,
    responses=problems.documented(problems.NOT_FOUND),
)
async def reset_style(app_name: AppName, fact_type: FactType, key: PathName, ledger: Ledger) -> Response:
    """Let a key go by what stands for every app, or by the program's own list, again."""
    if not await ledger.reset_style(app_name, fact_type, key):
        raise problems.ProblemError(problems.NOT_FOUND, f"nothing was said of the style of {fact_type} {key!r}")
    return Response(status_code=204)
