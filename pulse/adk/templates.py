"""New objects of a pydantic model from a validated one, without another validation.

Validating an event of ADK takes most of the time of reading a session. What the engine stored of an event was validated
when it was appended; an object that has no other fields than those that are given here is made from a template.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)


class Template(Generic[Model]):
    """Makes objects that equal those that the model itself would make of the same fields; they share no value."""

    __slots__ = ("_extra", "_fields", "_fresh", "_nested", "_private", "_type")

    def __init__(self, validated: Model) -> None:
        """Take an object whose fields, except those that `make` gets, have their defaults."""
        self._type = type(validated)
        self._fields = dict(validated.__dict__)
        self._nested = {name: Template(each) for name, each in self._fields.items() if isinstance(each, BaseModel)}
        self._fresh = {name: each for name, each in self._fields.items() if isinstance(each, dict | list | set)}
        self._extra = validated.__pydantic_extra__
        self._private = validated.__pydantic_private__

    def make(self, given: dict[str, Any]) -> Model:
        """Return an object with the given fields, which must be valid as they are."""
        made = self._type.__new__(self._type)
        fields = self._fields.copy()
        for name, value in self._fresh.items():
            if name not in given:
                fields[name] = value.copy()
        for name, template in self._nested.items():
            if name not in given:
                fields[name] = template.make({})
        fields.update(given)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", set(given))
        object.__setattr__(made, "__pydantic_extra__", None if self._extra is None else dict(self._extra))
        object.__setattr__(made, "__pydantic_private__", None if self._private is None else dict(self._private))
        return made
