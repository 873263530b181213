"""What a model is asked by an agent: a conversation with calls of tools, and the tools that it may call.

A provider that can call tools has the method `converse`; see `ToolModel`. It is a capability beside those of memory: a
generator without it extracts memories as before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from hippocampus.records import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that a model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model asks for.

    Attributes:
        arguments: as JSON; the model's text itself if that is not JSON.
        signature: what the provider needs to be sent back with the call, such as its encrypted reasoning.
    """

    id: str
    name: str
    arguments: Any
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """What the user said."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """What the model said, and the calls that it asked for: all of one turn together."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTurn:
    """The result of a call, as text."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


Turn: TypeAlias = UserTurn | ModelTurn | ResultTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStep:
    """A model's reply: its answer, or calls of tools.

    Attributes:
        thought: what the model says of its reasoning, if the provider gives it.
        is_cut: the reply ended at a limit of tokens.
        finish_reason: why the reply ended, in the provider's words.
        model_version: that answered, as the provider names it.
    """

    text: str = ""
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    is_cut: bool = False
    finish_reason: str = ""
    model_version: str | None = None


@runtime_checkable
class ToolModel(Protocol):
    """A generator whose model can call tools."""

    @property
    def name(self) -> str:
        """The provider's name."""

    @property
    def model(self) -> str:
        """The model's name."""

    async def converse(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], *, system: str = "", tokens_max: int | None = None
    ) -> ModelStep:
        """Return the model's next turn. Each call in `turns` is followed by its result.

        Raises:
            ProviderError: the call failed.
        """


def read_arguments(text: Any) -> Any:
    """Return the arguments of a call; a text that is not JSON stays as it is, to be refused with its reason."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text


def written_arguments(arguments: Any) -> str:
    """Return arguments as the text of a JSON object."""
    return json.dumps(arguments if isinstance(arguments, Mapping) else {"arguments": arguments}, ensure_ascii=False)


def object_arguments(arguments: Any) -> dict[str, Any]:
    """Return arguments as an object, as some servers require in a call that is sent back."""
    return dict(arguments) if isinstance(arguments, Mapping) else {"arguments": arguments}
