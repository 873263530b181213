"""New objects of a pydantic model from a validated one, without another validation.

Validating an event of ADK takes most of the time of reading a session. What the engine stored of an event was validated
when it was appended; an object that has no other fields than those that are given here is made from a template.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)

_NONE: Final[dict[str, Any]] = {}
# The slots of every model. Their descriptors set them without the look-up by name that `object.__setattr__` does.
_set_fields, _set_fields_set, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Template(Generic[Model]):
    """Makes objects that equal those that the model itself would make of the same fields; they share no value."""

    __slots__ = ("_extra", "_fields", "_fresh", "_nested", "_private", "_type")

    def __init__(self, validated: Model) -> None:
        """Take an object whose fields, except those that `make` gets, have their defaults."""
        self._type = type(validated)
        self._fields = dict(validated.__dict__)
        self._nested = [(name, Template(each)) for name, each in self._fields.items() if isinstance(each, BaseModel)]
        self._fresh = [(name, each) for name, each in self._fields.items() if isinstance(each, dict | list | set)]
        self._extra = validated.__pydantic_extra__
        self._private = validated.__pydantic_private__

    def make(self, given: dict[str, Any]) -> Model:
        """Return an object with the given fields, which must be valid as they are."""
        made = self._type.__new__(self._type)
        fields = {**self._fields, **given}
        for name, value in self._fresh:
            if name not in given:
                fields[name] = value.copy()
        for name, template in self._nested:
            if name not in given:
                fields[name] = template.make(_NONE)
        _set_fields(made, fields)
        _set_fields_set(made, set(given))
        _set_extra(made, None if self._extra is None else dict(self._extra))
        _set_private(made, None if self._private is None else dict(self._private))
        return made
