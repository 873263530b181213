"""The bodies of the routes of runs and tickets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from pulse.http.edge.schemas import Body, EscapedObject, Id, JsonObject, NextCursor, View
from pulse.runs.records import RunStatus


class RunView(View):
    """A run."""

    run_id: str
    thread_id: Annotated[str, Field(description="The session's id.")]
    status: RunStatus
    cancel_requested: bool
    error: str | None
    error_code: str | None
    first_sequence_num: Annotated[int, Field(description="Of the run's first event in the session.")]
    last_sequence_num: Annotated[int, Field(description="Of its newest event; other events may lie in between.")]
    started_at: datetime
    completed_at: datetime | None


class ModelPriceView(View):
    """The price of a model, per million tokens."""

    input: float
    output: float


class ModelPricesView(View):
    """What the operator says that models cost (HIPPOCAMPUS_MODEL_PRICES)."""

    currency: str
    models: Annotated[dict[str, ModelPriceView], Field(description="By the model's name; others are not known.")]


class RunListView(View):
    """A page of a thread's runs, the newest first."""

    runs: list[RunView]
    prices: Annotated[
        ModelPricesView | None,
        Field(description="For the `usage` that the last event of a run has; null for a key of one user."),
    ]
    next_cursor: NextCursor


class MessageListView(View):
    """A conversation, oldest first."""

    messages: Annotated[list[JsonObject], Field(description="AG-UI's messages.")]


class AgentView(View):
    """An agent that this process runs."""

    name: Annotated[str, Field(description="For POST /agui/{agent_name}.")]
    description: str
    runs_alone: Annotated[bool, Field(description="Its run is refused while another run of the session is active.")]
    capabilities: Annotated[EscapedObject, Field(description="AG-UI's AgentCapabilities, as the agent declares them.")]


class AgentListView(View):
    """The agents that this process runs."""

    agents: list[AgentView]


class TicketInput(Body):
    """What a ticket allows."""

    thread_id: Annotated[Id, Field(description="The session whose streams may be followed.")]
    run_id: Annotated[Id | None, Field(description="Only this run; by default every run of the session.")] = None
    may_run: Annotated[
        bool, Field(description="Whether it also runs agents in the session, and cancels their runs. Needs `append`.")
    ] = False
    model_config = ConfigDict(json_schema_extra={"examples": [{"thread_id": "order-17"}]})


class TicketView(View):
    """A ticket. It is returned only once."""

    ticket: Annotated[str, Field(description="For the query: ?ticket=…, of any number of connections until it expires")]
    expires_at: datetime
