"""The route that answers questions."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import Response

from hippocampus.answers import AnswerService
from hippocampus.http import problems as memory_problems
from hippocampus.http.routes.answers_schemas import AnswerView, QuestionInput
from pulse.http.edge import problems
from pulse.http.edge.bodies import reply
from pulse.http.edge.owner import PathOwner
from pulse.http.edge.roles import require
from pulse.http.edge.routing import USER_PATH, make_router
from pulse.http.edge.services import service

router = make_router("memory", USER_PATH)


@router.post(
    "/ask",
    summary="Answer a question",
    dependencies=[require("read")],
    response_model=AnswerView,
    responses=problems.documented(
        *problems.BODY,
        memory_problems.CONTEXT_BUDGET,
        problems.INVALID_REQUEST,
        memory_problems.MODEL_REFUSED,
        memory_problems.MODEL_UNAVAILABLE,
    ),
)
async def ask(
    owner: PathOwner, body: QuestionInput, answers: Annotated[AnswerService, service(AnswerService)]
) -> Response:
    """Answer from what is remembered, with citations; without a model, by the passages that match best."""
    return reply(AnswerView.of(await answers.ask(app_name=owner.app_name, user_id=owner.user_id, **dict(body))))
