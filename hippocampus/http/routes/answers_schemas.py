"""The bodies of the route that answers questions."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from hippocampus import answers
from hippocampus.answers import AnsweredBy, CitedSource
from hippocampus.http.fields import AskedAt, TimeZone
from pulse.http.edge.schemas import Body, View


class QuestionInput(Body):
    """A question about a user."""

    question: Annotated[
        str,
        StringConstraints(min_length=1, max_length=answers.QUESTION_LENGTH_MAX),
        Field(description="In plain words, of any language."),
    ]
    language: Annotated[
        Literal["en", "zh"] | None, Field(description="The language of the answer; null: that of the question.")
    ] = None
    max_tokens: Annotated[
        int,
        Field(
            ge=answers.WINDOW_TOKENS_MIN,
            le=answers.WINDOW_TOKENS_MAX,
            description="The budget of what the model reads of the memory.",
        ),
    ] = answers.WINDOW_TOKENS
    max_answer_tokens: Annotated[
        int,
        Field(ge=answers.ANSWER_TOKENS_MIN, le=answers.ANSWER_TOKENS_MAX, description="The budget of the answer."),
    ] = answers.ANSWER_TOKENS
    max_seconds: Annotated[
        float,
        Field(
            ge=answers.ANSWER_SECONDS_MIN,
            le=answers.ANSWER_SECONDS_MAX,
            description="The time for everything; after it, the request fails with 503.",
        ),
    ] = answers.ANSWER_SECONDS
    asked_at: AskedAt = None
    time_zone: TimeZone = None
    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "Where do I live?"}]})


class CitationView(View):
    """What an answer rests on."""

    source: Annotated[
        CitedSource,
        Field(description="GET …/memories/{id}/origin leads from any of them to the turns that it comes from."),
    ]
    id: uuid.UUID
    text: str
    session_id: str | None
    sequence_nums: Annotated[list[int], Field(description="The turns, by their numbers in the session.")]
    occurred_at: datetime | None
    changed: Annotated[
        str | None, Field(description="What holds instead now; empty: nothing does. Null: it has not changed.")
    ]


class UsageView(View):
    """The tokens of the calls for one answer."""

    prompt_tokens: int
    output_tokens: int


class AnswerView(View):
    """An answer."""

    text: Annotated[str, Field(description="Never empty; says so if the answer is not known.")]
    is_known: bool
    answered_by: Annotated[
        AnsweredBy | None,
        Field(
            description="model; passages: there is no model, and the text is what matches best; null: nothing is"
            " remembered, and no model was asked."
        ),
    ]
    citations: Annotated[list[CitationView], Field(description="Empty if and only if the answer is not known.")]
    language: Literal["en", "zh"]
    model: Annotated[str | None, Field(description="The model's version; null if no model was asked.")]
    usage: UsageView
    window_tokens: int
    degraded: Annotated[str | None, Field(description="Why only the text was searched; null if nothing failed.")]
