"""Python functions as tools: the schema of their arguments, and how they are called."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from pulse.errors import InvalidInputError
from pulse.tools.records import ToolContext, ToolError


class PythonTool:
    """A function of this process, plain or a coroutine, with a JSON Schema of its arguments.

    A parameter that is annotated with `ToolContext` gets the call's context; it is not an argument. Plain functions run
    in a thread.

    Raises:
        InvalidInputError: it has ``*args`` or ``**kwargs``, or an annotation that no schema can express.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self._func = func
        self._context: str | None = None
        fields: dict[str, Any] = {}
        try:
            hints = typing.get_type_hints(func, include_extras=True)
        except Exception as error:  # noqa: BLE001 - whatever a module's annotations raise
            raise InvalidInputError(f"the annotations of {_name(func)} cannot be read: {error}") from None
        for name, parameter in inspect.signature(func).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidInputError(
                    f"{_name(func)}: every parameter of a tool must have a name of its own, not {parameter}"
                )
            kind = hints.get(name, Any)
            if kind is ToolContext:
                self._context = name
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (kind, default)
        try:
            self._model: type[BaseModel] = create_model(
                "Arguments", __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
            )
            schema = self._model.model_json_schema()
        except Exception as error:  # noqa: BLE001 - pydantic has several classes for it
            raise InvalidInputError(f"{_name(func)} has an annotation that no schema can express: {error}") from None
        schema.pop("title", None)
        schema.setdefault("required", [])
        self.input_schema: dict[str, Any] = schema

    @property
    def description(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self._func) or ""

    async def __call__(self, given: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function with checked arguments, and return its result as JSON.

        Raises:
            ToolError: an argument has no value of its type, or the result is not JSON.
            Exception: the function's own.
        """
        try:
            arguments = self._model.model_validate(dict(given))
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = "/".join(map(str, wrong["loc"]))
            raise ToolError(f"/{where}: {wrong['msg'][:200]}", "invalid_arguments") from None
        named = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        if self._context is not None:
            named[self._context] = context
        return await call_function(self._func, named)


class DescribedTool:
    """A function whose arguments a schema describes that was given with it."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self._func = func

    @property
    def description(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self._func) or ""

    async def __call__(self, given: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function with arguments that fit the schema; see `PythonTool`."""
        return await call_function(self._func, given)


async def call_function(func: Callable[..., Any], named: Mapping[str, Any]) -> Any:
    """Call a function, in a thread if it is a plain one, and return its result as JSON."""
    if inspect.iscoroutinefunction(func):
        found = await func(**named)
    else:
        found = await asyncio.to_thread(functools.partial(func, **named))
        if inspect.isawaitable(found):
            found = await found
    return as_json(found)


def as_json(value: Any) -> Any:
    """Return a value as JSON: dataclasses, models, times and the like as pydantic writes them.

    Raises:
        ToolError: it cannot be written so.
    """
    try:
        return to_jsonable_python(value, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError):
        raise ToolError(f"the tool returned a {type(value).__name__}, which is not JSON") from None


def _name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", func))
