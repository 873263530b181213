"""The routes of fact styles: which keys of an app's facts hold one value, and which hold several."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from hippocampus.http.routes.fact_styles_schemas import StyleInput, StylePageView, StyleView
from hippocampus.http.routes.facts import Ledger
from hippocampus.records import FactType
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, make_router
from pulse.http.edge.schemas import AppName, PathName

router = make_router("memory", f"{APP_PATH}/fact-styles")


@router.get("", summary="List styles of keys", dependencies=[require("read")], response_model=StylePageView)
async def list_styles(app_name: AppName, ledger: Ledger, page: Annotated[Page, page_of(50)]) -> Response:
    """List the styles of keys, for this app and for every app."""
    found = await ledger.list_styles(app_name, limit=page.limit, after=page.start(tuple[str, str, str]))
    following = page.next_cursor(found, lambda each: (each.app_name, each.fact_type, each.normal_key))
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
    """Set whether a key, in any spelling, holds one value or several. Stored facts are not changed."""
    return reply(StyleView.of(await ledger.set_style(app_name, fact_type, key, body.style)))


@router.delete(
    "/{fact_type}/{key}",
    summary="Remove the style of a key",
    dependencies=[require("admin")],
    status_code=204,
    responses=problems.documented(problems.NOT_FOUND),
)
async def reset_style(app_name: AppName, fact_type: FactType, key: PathName, ledger: Ledger) -> Response:
    """Have a key follow the style for every app, or the built-in list, again."""
    if not await ledger.reset_style(app_name, fact_type, key):
        raise problems.ProblemError(problems.NOT_FOUND, f"there is no style of {fact_type} {key!r}; see /fact-styles")
    return Response(status_code=204)
