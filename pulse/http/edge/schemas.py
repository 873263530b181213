"""The base of every body, and the fields that bodies and parameters share."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self, TypeAlias
from urllib.parse import unquote_to_bytes

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from pulse.postgres.json_values import escape_state

PAGE_SIZE_MAX: Final = 1000
WITHOUT_NUL: Final = r"^[^\x00]*$"

ESCAPE_NOTE: Final = (
    "Any JSON value, kept exactly. Values that JSON or PostgreSQL cannot represent (NaN, infinities, U+0000 and lone"
    ' surrogates in responses, -0.0, 1e22 and larger) are written as {"$hippocampus": ["float", "nan"]} or'
    ' {"$hippocampus": ["text", "JSON escapes"]}; a key as "$hippocampus:JSON escapes".'
)
DELETED_NOTE: Final = '{"$hippocampus": ["deleted"]} in place of a value removes the key; null sets it to null.'


class View(BaseModel):
    """The body of a response, made from a record."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    @classmethod
    def of(cls, record: object, /, **replaced: Any) -> Self:
        """Return the view of a record.

        Args:
            record: has an attribute for each field.
            replaced: fields that the record does not have, or has under another name.
        """
        if not replaced:
            return cls.model_validate(record)
        read = {name: getattr(record, name) for name in cls.model_fields if name not in replaced}
        return cls.model_validate({**read, **replaced})


class Body(BaseModel):
    """The body of a request. Fields that it does not describe are refused; types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def decode(segment: Any) -> Any:
    """Decode the percent-encoding of a path segment; paths are matched in their encoded form."""
    return unquote_to_bytes(segment).decode() if isinstance(segment, str) else segment


Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=WITHOUT_NUL)]
Id: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=WITHOUT_NUL)]
JsonObject: TypeAlias = dict[str, Any]
#: A stored value in a response.
Escaped: TypeAlias = Annotated[Any, BeforeValidator(escape_state)]
EscapedObject: TypeAlias = Annotated[JsonObject, BeforeValidator(escape_state)]
#: The cursor in a response that holds one page of a list.
NextCursor: TypeAlias = Annotated[
    str | None, Field(description="Where the next page starts; null after the last page.")
]

AppName: TypeAlias = Annotated[Name, BeforeValidator(decode), Path(description="The application.", examples=["shop"])]
UserId: TypeAlias = Annotated[Name, BeforeValidator(decode), Path(description="The user's id in the application.")]
SessionId: TypeAlias = Annotated[
    Id, BeforeValidator(decode), Path(description="The session's id; write '/' in it as %2F.")
]
RunId: TypeAlias = Annotated[Id, BeforeValidator(decode), Path(description="The run's id, as its client chose it.")]
ThreadId: TypeAlias = Annotated[
    Id, BeforeValidator(decode), Path(description="The session's id; write '/' in it as %2F.")
]
#: Any other name in a path.
PathName: TypeAlias = Annotated[Name, BeforeValidator(decode)]
