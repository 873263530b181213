"""The API's documentation: the OpenAPI document, and a page that is rendered from it.

The page loads no scripts, fonts or styles.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from pulse.http.edge import problems
from workers.api.operation import OPEN_PATHS

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
h3 { margin-bottom: .2rem; font-size: 1rem }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td { vertical-align: top; padding: .2rem .8rem .2rem 0 }
.method { display: inline-block; min-width: 4.2rem; font-weight: 700 }
details { margin: .4rem 0 }
summary { cursor: pointer }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } pre { background: #242424 } h2 { border-color: #444 }
}
"""


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


def render_page(document: dict[str, Any]) -> str:
    """Return a page with every operation: its parameters, its body with an example, and its responses."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{_text(info['title'])} API</title><style>{_STYLE}</style>",
        f"<h1>{_text(info['title'])} API {_text(info['version'])}</h1>",
        *(f"<p>{_text(paragraph)}</p>" for paragraph in info["description"].strip().split("\n\n")),
        "<p>For programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    section = ""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            tag = operation.get("tags", ["other"])[0]
            if tag != section:
                parts.append(f"<h2>{_text(tag.capitalize())}</h2>")
                section = tag
            parts.extend(_render_operation(document, method, path, operation))
    parts.append("<h2>Problems</h2><table>")
    for kind in problems.KINDS.values():
        cells = (f"<code>{kind.uri}</code>", str(kind.status), f"{_text(kind.title)}. {_text(kind.advice)}")
        parts.append("<tr id='{}'>{}</tr>".format(kind.slug, "".join(f"<td>{cell}</td>" for cell in cells)))
    return "\n".join([*parts, "</table></html>"])


def _render_operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h3><span class=method>{method.upper()}</span> <code>{_text(path)}</code></h3>"
    yield f"<p>{_text(operation.get('description') or operation['summary'])}</p>"
    parameters = operation.get("parameters", ())
    if parameters:
        yield "<details><summary>Parameters</summary><table>"
        for each in parameters:
            needed = "" if each["required"] else ", optional"
            yield (
                f"<tr><td><code>{_text(each['name'])}</code><td>{_text(each['in'])}{needed}"
                f"<td>{_text(each.get('description', ''))}</tr>"
            )
        yield "</table></details>"
    body = operation.get("requestBody")
    if body:
        schema = _resolve(document, body["content"]["application/json"]["schema"])
        yield "<details><summary>Body</summary>"
        for example in schema.get("examples", ()):
            yield f"<p>For example:</p><pre>{_text(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"
        yield f"<pre>{_text(json.dumps(schema, indent=2, ensure_ascii=False))}</pre></details>"
    yield "<details><summary>Responses</summary><table>"
    for status, response in operation["responses"].items():
        yield f"<tr><td>{status}<td>{_text(response['description'])}</tr>"
    yield "</table></details>"


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name] if name else schema
    return found


def _text(text: str) -> str:
    return html.escape(text)
