"""The OpenAPI document. `GET /docs` shows it; see `pulse.http.page`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from pulse.http.edge import problems
from workers.api.operation import OPEN_PATHS


class DocumentedApi(FastAPI):
    """FastAPI with an exact document: problems have their schema, the key is a bearer token."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document. It is built once."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document["components"]["schemas"] | problems.schemas()
            document["components"]["schemas"] = dict(sorted(schemas.items()))
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}]
            for path in OPEN_PATHS & document["paths"].keys():
                document["paths"][path]["get"]["security"] = []
        return super().openapi()
