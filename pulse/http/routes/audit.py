"""The route of the audit log."""

from __future__ import annotations

import uuid
from typing import Annotated

from starlette.responses import Response

from pulse.audit import AuditLog
from pulse.http.edge.bodies import reply
from pulse.http.edge.pages import Page, page_of
from pulse.http.edge.roles import require
from pulse.http.edge.routing import APP_PATH, make_router
from pulse.http.edge.schemas import AppName
from pulse.http.edge.services import service
from pulse.http.routes.audit_schemas import ActPageView, ActView

router = make_router("operation", f"{APP_PATH}/audit")

Log = Annotated[AuditLog, service(AuditLog)]


@router.get("", summary="List administrative acts", dependencies=[require("admin")], response_model=ActPageView)
async def list_acts(app_name: AppName, log: Log, page: Annotated[Page, page_of(100)]) -> Response:
    """List who did what in administration, the newest first: of this app, and of every app."""
    found = await log.list(app_name, limit=page.limit, before=page.start(uuid.UUID))
    following = page.next_cursor(found, lambda each: each.id)
    return reply(ActPageView(acts=[ActView.of(each) for each in found], next_cursor=following))
