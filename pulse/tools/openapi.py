"""OpenAPI documents (3.0 and 3.1) as tools: one operation each.

A document is checked whole before anything is stored: every fault has its JSON Pointer. References stay references, so
that a schema is as large as its document, however its parts refer to each other: a tool's schema has the ``$defs`` that
it reaches. What 3.0 writes in its own way (``nullable``, boolean bounds) is rewritten as JSON Schema 2020-12.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from pulse.errors import InvalidInputError
from pulse.process.extras import install_command
from pulse.tools.records import Nature
from pulse.tools.schemas import SchemaCheck, check_depth

DOCUMENT_BYTES_MAX = 2 * 2**20
OPERATIONS_MAX = 500
#: The size of the schemas of all operations, each with the definitions that it reaches.
SCHEMAS_BYTES_MAX = 16 * 2**20
NAME_LENGTH_MAX = 64
DEPTH_MAX = 64
_FAULTS_SHOWN_MAX = 20
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_SAFE = ("get", "head", "options")
#: May be repeated, by RFC 9110.
_IDEMPOTENT = (*_SAFE, "put", "delete")
_IGNORED_HEADERS = frozenset("accept content-type authorization host content-length connection cookie".split())
_UNSENDABLE_HEADERS = frozenset("transfer-encoding te trailer upgrade expect proxy-authorization".split())
_DOCUMENTATION = frozenset("example examples xml externalDocs discriminator deprecated".split())
_Side: TypeAlias = Literal["request", "result"]
#: Properties that the other side has: not required of this one.
_NOT_REQUIRED: Mapping[_Side, str] = {"request": "readOnly", "result": "writeOnly"}
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_STYLES = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
#: Styles that OpenAPI also has, and that are not supported here.
_OTHER_STYLES = {"path": ("label", "matrix")}


class DocumentError(InvalidInputError):
    """A document is not what it should be; nothing was stored.

    Attributes:
        faults: what is wrong, by JSON Pointer.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        self.faults = dict(faults)
        shown = "; ".join(f"{where}: {what}" for where, what in list(faults.items())[:_FAULTS_SHOWN_MAX])
        more = f"; and {len(faults) - _FAULTS_SHOWN_MAX} more" if len(faults) > _FAULTS_SHOWN_MAX else ""
        super().__init__(f"the document has {len(faults)} faults: {shown}{more}; nothing was stored")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a document, as a tool.

    Attributes:
        call: how its request is made: method, url, path, parameters, body, security.
    """

    name: str
    display_name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    nature: Nature
    is_safe: bool
    call: Mapping[str, Any]
    described: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that was read and checked.

    Attributes:
        schemes: the security schemes that its operations use, by name.
        skipped: operations that no tool can be made of, by JSON Pointer, and why.
    """

    raw: Mapping[str, Any]
    sha256: bytes
    operations: tuple[Operation, ...]
    schemes: Mapping[str, Mapping[str, Any]]
    skipped: Mapping[str, str]


def parse(text: str | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document from JSON, or from YAML without aliases and tags.

    Raises:
        DocumentError: it is neither, is over 2 MB or 64 levels, or is not an object.
    """
    if isinstance(text, Mapping):
        found: Any = text
        try:
            size = len(json.dumps(text))
        except (TypeError, ValueError, RecursionError) as error:
            raise DocumentError({"/": f"it is not JSON: {str(error)[:120]}"}) from None
    else:
        raw = text.encode() if isinstance(text, str) else text
        size = len(raw)
        found = _parse_text(raw) if size <= DOCUMENT_BYTES_MAX else None
    if size > DOCUMENT_BYTES_MAX:
        raise DocumentError({"/": f"it has over {DOCUMENT_BYTES_MAX:,} bytes: split it"})
    if not isinstance(found, Mapping):
        raise DocumentError({"/": f"it must be an object, not {type(found).__name__}"})
    try:
        check_depth(found, "it", depth_max=DEPTH_MAX)
    except InvalidInputError as error:
        raise DocumentError({"/": str(error)}) from None
    return found


def read_file(path: Path) -> bytes:
    """Return the text of a document.

    Raises:
        DocumentError: it cannot be read, or has over 2 MB.
    """
    try:
        with path.open("rb") as file:
            return file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise DocumentError({"/": f"{path} cannot be read: {error.strerror}"}) from None


def load(
    raw: Mapping[str, Any],
    *,
    base_url: str | None = None,
    where: str | None = None,
    credentials: Collection[str] = (),
) -> Document:
    """Check a document and return its operations.

    Args:
        base_url: instead of the document's servers.
        where: the document's own URL, which its relative servers continue.
        credentials: the security schemes that there are credentials for: of alternatives, one of these is chosen.

    Raises:
        DocumentError: it has a fault.
    """
    return _Loader(raw, base_url, where, credentials).load()


def _parse_text(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentError({"/": "it is not valid UTF-8"}) from None
    try:
        if text.lstrip()[:1] == "{":
            return json.loads(text)
        return _parse_yaml(text)
    except RecursionError:
        raise DocumentError({"/": f"it is nested more than {DEPTH_MAX} deep: use $ref"}) from None
    except DocumentError:
        raise
    except ValueError as error:
        raise DocumentError({"/": f"it is not JSON: {str(error)[:120]}"}) from None


def _parse_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(f"YAML needs {error.name}, which is not installed: {install_command('tools')}") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        """YAML as JSON: no aliases, and no dates."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("an alias in YAML: write the part out, or use $ref")
            return super().compose_node(parent, index)

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        # Statuses of responses are numbers in YAML, and names in JSON.
        return _with_text_keys(yaml.load(text, Loader))  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise DocumentError({"/": f"it is not YAML: {' '.join(str(error).split())[:160]}"}) from None
    except (ValueError, TypeError) as error:
        raise DocumentError({"/": str(error)[:160]}) from None


def _with_text_keys(value: Any, depth: int = 0) -> Any:
    if depth > DEPTH_MAX + 1:
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return {
            (str(key).lower() if isinstance(key, bool) else str(key)): _with_text_keys(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_text_keys(item, depth + 1) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"YAML's {type(value).__name__} is not a JSON value")


class _Loader:
    """Reads one document, and collects its faults."""

    def __init__(
        self, raw: Mapping[str, Any], base_url: str | None, where: str | None, credentials: Collection[str]
    ) -> None:
        self._raw = raw
        self._base_url = base_url
        self._where = where
        self._credentials = frozenset(credentials)
        self._faults: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._used: dict[str, dict[str, Any]] = {}
        self._is_30 = True
        #: Definitions for requests and for results: what is required differs.
        self._definitions: dict[_Side, dict[str, Any]] = {"request": {}, "result": {}}

    def load(self) -> Document:
        """Return what the document describes.

        Raises:
            DocumentError: it has a fault.
        """
        version = self._raw.get("openapi")
        if "swagger" in self._raw:
            self._fault("/swagger", "Swagger 2 is not read: convert the document to OpenAPI 3")
        elif not isinstance(version, str) or not re.fullmatch(r"3\.[01]\.\d+", version):
            self._fault("/openapi", "it is not 3.0.x or 3.1.x")
        if self._faults:
            raise DocumentError(self._faults)
        self._is_30 = str(version).startswith("3.0")
        self._check_references()
        operations = list(self._operations()) if not self._faults else []
        if not self._faults and not operations and not self._skipped:
            self._fault("/paths", "there is no operation")
        if sum(len(json.dumps([each.input_schema, each.output_schema])) for each in operations) > SCHEMAS_BYTES_MAX:
            self._fault("/paths", f"the schemas of its operations have over {SCHEMAS_BYTES_MAX:,} bytes together")
        if self._faults:
            raise DocumentError(self._faults)
        text = json.dumps(self._raw, sort_keys=True, ensure_ascii=False)
        return Document(
            raw=self._raw,
            sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(),
            operations=tuple(operations),
            schemes=self._used,
            skipped=self._skipped,
        )

    def _fault(self, where: str, what: str) -> None:
        self._faults.setdefault(where or "/", what)

    def _check_references(self) -> None:
        """Find references that lead outside, or nowhere."""
        waiting: list[tuple[str, Any]] = [("", self._raw)]
        while waiting:
            where, value = waiting.pop()
            if isinstance(value, Mapping):
                reference = value.get("$ref")
                if isinstance(reference, str) and not where.endswith(
                    ("/properties", "/example", "/examples", "/default")
                ):
                    if not reference.startswith("#/"):
                        self._fault(f"{where}/$ref", "it leads out of the document")
                    elif self._find(reference) is None:
                        self._fault(f"{where}/$ref", "it leads nowhere")
                waiting.extend((f"{where}/{_escaped(key)}", item) for key, item in value.items())
            elif isinstance(value, list):
                waiting.extend((f"{where}/{index}", item) for index, item in enumerate(value))

    def _find(self, reference: str) -> Any:
        found: Any = self._raw
        for part in reference[2:].split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def _resolved(self, value: Any, where: str) -> Mapping[str, Any]:
        """Follow references to an object that is not a schema."""
        for _ in range(16):
            if not isinstance(value, Mapping):
                self._fault(where, "it is not an object")
                return {}
            if not isinstance(value.get("$ref"), str):
                return value
            value = self._find(value["$ref"])
        self._fault(where, "its references lead in a circle")
        return {}

    def _operations(self) -> Iterator[Operation]:
        paths = self._raw.get("paths")
        if not isinstance(paths, Mapping):
            self._fault("/paths", "it is not an object")
            return
        names: dict[str, str] = {}
        count = 0
        for path, given in paths.items():
            where = f"/paths/{_escaped(path)}"
            if path.startswith("x-"):
                continue
            if not path.startswith("/"):
                self._fault(where, "a path begins with /")
                continue
            item = self._resolved(given, where)
            for method in _METHODS:
                if method not in item:
                    continue
                count += 1
                if count > OPERATIONS_MAX:
                    self._fault("/paths", f"there are over {OPERATIONS_MAX} operations")
                    return
                operation = self._operation(path, method, item, f"{where}/{method}")
                if operation is None:
                    continue
                if operation.name in names:
                    self._fault(f"{where}/{method}/operationId", f"{operation.name} is also {names[operation.name]}")
                names[operation.name] = f"{where}/{method}"
                yield operation

    def _operation(self, path: str, method: str, item: Mapping[str, Any], where: str) -> Operation | None:
        given = item[method]
        if not isinstance(given, Mapping):
            self._fault(where, "it is not an object")
            return None
        before = len(self._faults)
        if method == "trace":
            self._skipped[where] = "TRACE is never sent"
            return None
        parameters = self._parameters(path, item, given, where)
        unknown = [each["name"] for each in parameters if each["style"] not in _STYLES[each["in"]]]
        if unknown:
            self._skipped[where] = f"no parameter {unknown[0][:60]!r} of its style can be made"
            return None
        body = self._body(given, where)
        if isinstance(body, str):
            self._skipped[where] = body
            return None
        security = self._security(given, where)
        url = self._server(given, item, where)
        if len(self._faults) > before:
            return None
        properties: dict[str, Any] = {}
        required: list[str] = []
        call_parameters = []
        for parameter in parameters:
            name = parameter["name"]
            argument = name if name not in properties and name != "body" else f"{name}_{parameter['in']}"
            properties[argument] = parameter.pop("schema")
            if parameter.pop("required"):
                required.append(argument)
            call_parameters.append({**parameter, "argument": argument})
        if body is not None:
            properties["body"] = body["schema"]
            if body["required"]:
                required.append("body")
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        input_schema = self._complete(schema, "request")
        responses = None if method == "head" else self._output(given, where)
        self._check(input_schema, where)
        output_schema = None if responses is None else self._complete(responses, "result")
        if output_schema is not None:
            self._check(output_schema, f"{where}/responses")
        call = {
            "method": method.upper(),
            "url": url,
            "path": path,
            "parameters": call_parameters,
            "body": None if body is None else body["media_type"],
            "security": security,
        }
        summary = str(given.get("summary") or "")
        is_marked = given.get("x-idempotent")
        return Operation(
            name=tool_name(str(given.get("operationId") or f"{method}_{path}")),
            display_name=(summary or str(given.get("operationId") or f"{method.upper()} {path}"))[:255],
            description="\n\n".join(filter(None, (summary, str(given.get("description") or ""))))[:8192],
            input_schema=input_schema,
            output_schema=output_schema,
            nature="again" if is_marked is True or (is_marked is None and method in _IDEMPOTENT) else "once",
            is_safe=method in _SAFE,
            call=call,
            described={
                "path": path,
                "method": method,
                "operation": {k: v for k, v in given.items() if k != "examples"},
            },
        )

    def _parameters(
        self, path: str, item: Mapping[str, Any], given: Mapping[str, Any], where: str
    ) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for owner, origin in ((item, where.rpartition("/")[0]), (given, where)):
            listed = owner.get("parameters") or []
            if not isinstance(listed, list):
                self._fault(f"{origin}/parameters", "it is not a list")
                continue
            for index, entry in enumerate(listed):
                at = f"{origin}/parameters/{index}"
                parameter = self._parameter(self._resolved(entry, at), at)
                if parameter is not None:
                    found[(parameter["in"], parameter["name"])] = parameter
        named = _TEMPLATE.findall(path)
        for name in named:
            if ("path", name) not in found:
                self._fault(where, f"the parameter {name[:60]!r} of its path is not described")
        for place, name in found:
            if place == "path" and name not in named:
                self._fault(where, f"its path has no parameter {name[:60]!r}")
        return list(found.values())

    def _parameter(self, given: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        if not given:
            return None
        name, place = given.get("name"), given.get("in")
        if not isinstance(name, str) or not name or place not in _STYLES:
            self._fault(where, "a parameter has a name, and is in path, query, header or cookie")
            return None
        if place == "header" and (
            name.lower() in _IGNORED_HEADERS or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name)
        ):
            return None  # as OpenAPI says of these headers
        if place == "header" and name.lower() in _UNSENDABLE_HEADERS:
            self._fault(where, f"the header {name[:60]} cannot be a parameter")
            return None
        style = given.get("style", _STYLES[place][0])
        if style not in (*_STYLES[place], *_OTHER_STYLES.get(place, ())):
            self._fault(f"{where}/style", f"a {place} parameter is {' or '.join(_STYLES[place])}")
            return None
        media_type = None
        schema = given.get("schema")
        if schema is None and isinstance(given.get("content"), Mapping) and len(given["content"]) == 1:
            media_type, content = next(iter(given["content"].items()))
            schema = content.get("schema", {}) if isinstance(content, Mapping) else {}
        if not isinstance(schema, Mapping | bool):
            self._fault(f"{where}/schema", "a parameter has a schema, or one content")
            return None
        if place == "path" and given.get("required") is not True:
            self._fault(f"{where}/required", "a parameter of a path is required")
        described = self._converted(schema, "request")
        if isinstance(described, dict) and given.get("description") and "$ref" not in described:
            described.setdefault("description", str(given["description"])[:1024])
        return {
            "name": name,
            "in": place,
            "style": style,
            "explode": bool(given.get("explode", style == "form")),
            "content": media_type,
            "required": place == "path" or given.get("required") is True,
            "schema": described,
        }

    def _body(self, given: Mapping[str, Any], where: str) -> dict[str, Any] | str | None:
        """Return a request's body; None if it has none; or why it cannot be sent."""
        if "requestBody" not in given:
            return None
        at = f"{where}/requestBody"
        body = self._resolved(given["requestBody"], at)
        content = body.get("content")
        if not isinstance(content, Mapping) or not content:
            self._fault(f"{at}/content", "it is not an object with a media type")
            return None
        for media_type, described in content.items():
            if is_json(media_type) or media_type in ("application/x-www-form-urlencoded", "text/plain"):
                schema = described.get("schema", {}) if isinstance(described, Mapping) else {}
                return {
                    "media_type": media_type,
                    "schema": self._closed(schema),
                    "required": body.get("required") is True,
                }
        return f"no body of {', '.join(map(str, content))[:120]} can be made"

    def _closed(self, schema: Any) -> Any:
        """Return a body's schema that refuses what it does not describe, unless the document says otherwise."""
        target = schema
        for _ in range(16):
            if isinstance(target, Mapping) and isinstance(target.get("$ref"), str):
                target = self._find(target["$ref"])
        converted = self._converted(schema, "request")
        if not isinstance(target, Mapping) or not isinstance(converted, dict):
            return converted
        says = {"additionalProperties", "unevaluatedProperties", "patternProperties"}
        if "properties" in target and not says & target.keys():
            return {**converted, "unevaluatedProperties": False}
        return converted

    def _output(self, given: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """Return the schema of a result; None if the document does not describe one for every success."""
        responses = given.get("responses")
        if not isinstance(responses, Mapping):
            self._fault(f"{where}/responses", "it is not an object")
            return None
        found: list[dict[str, Any]] = []
        for status, entry in responses.items():
            if not str(status).startswith("2"):
                continue
            response = self._resolved(entry, f"{where}/responses/{_escaped(str(status))}")
            content = response.get("content")
            if not content:
                found.append({"type": "null"})
                continue
            described = (
                [item for name, item in content.items() if is_json(name)] if isinstance(content, Mapping) else []
            )
            schemas = [item.get("schema") for item in described if isinstance(item, Mapping)]
            converted = [self._converted(each, "result") for each in schemas if isinstance(each, Mapping)]
            if not converted or len(converted) < len(described):
                return None  # a success that may be anything
            found += converted
        if not found or all(each == {"type": "null"} for each in found):
            return None
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _security(self, given: Mapping[str, Any], where: str) -> list[str]:
        """Return the names of the schemes of the first alternative."""
        alternatives = given.get("security", self._raw.get("security")) or []
        at = f"{where}/security" if "security" in given else "/security"
        if not isinstance(alternatives, list) or not all(isinstance(each, Mapping) for each in alternatives):
            self._fault(at, "it is not a list of objects")
            return []
        # One that there are credentials for, else none if that is allowed, else the first that is supported.
        ordered = sorted(
            alternatives, key=lambda each: 0 if each and self._credentials >= each.keys() else 2 if each else 1
        )
        components = self._raw.get("components")
        schemes = components.get("securitySchemes", {}) if isinstance(components, Mapping) else {}
        reason = ""
        for alternative in ordered:
            read = {name: self._scheme(schemes.get(name)) for name in alternative}
            if all(isinstance(scheme, dict) for scheme in read.values()):
                for name, scheme in read.items():
                    if isinstance(scheme, dict):
                        self._use(name, scheme, alternative[name])
                return list(read)
            reason = next(f"{name}: {scheme}" for name, scheme in read.items() if isinstance(scheme, str))
        if reason:
            self._fault(at, reason)
        return []

    def _use(self, name: str, scheme: dict[str, Any], scopes: Any) -> None:
        """Note a scheme that an operation uses, with the scopes of OAuth2 that it needs."""
        used = self._used.setdefault(name, scheme)
        if scheme["type"] == "oauth2" and isinstance(scopes, list):
            used["scopes"] += [each for each in scopes if isinstance(each, str) and each not in used["scopes"]]

    def _scheme(self, given: Any) -> dict[str, Any] | str:
        scheme = self._resolved(given, "/components/securitySchemes") if given is not None else None
        match scheme:
            case None:
                return "there is no such security scheme"
            case {"type": "apiKey", "in": ("query" | "header" | "cookie") as place, "name": str(name)} if name:
                return {"type": "apiKey", "in": place, "name": name}
            case {"type": "http", "scheme": str(kind)} if kind.lower() in ("bearer", "basic"):
                return {"type": kind.lower()}
            case {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": str(url)}}}:
                return {"type": "oauth2", "token_url": urljoin(self._where or "", url), "scopes": []}
            case {"type": "oauth2" | "openIdConnect"}:
                return {"type": "bearer"}  # the credential is a token that its operator has got
        return "of security schemes, apiKey, http bearer and basic, oauth2 and openIdConnect are supported"

    def _server(self, given: Mapping[str, Any], item: Mapping[str, Any], where: str) -> str:
        if self._base_url is not None:
            return check_url(self._base_url)
        for owner, at in ((given, where), (item, where.rpartition("/")[0]), (self._raw, "")):
            servers = owner.get("servers")
            if not isinstance(servers, list) or not servers:
                continue
            first = servers[0]
            if not isinstance(first, Mapping) or not isinstance(first.get("url"), str):
                self._fault(f"{at}/servers/0/url", "it is not a URL")
                return ""
            variables = first.get("variables")
            variables = variables if isinstance(variables, Mapping) else {}

            def default(name: re.Match[str], known: Mapping[str, Any] = variables) -> str:
                found = known.get(name[1])
                return str(found.get("default", "")) if isinstance(found, Mapping) else ""

            url = urljoin(self._where or "", _TEMPLATE.sub(default, first["url"]))
            try:
                return check_url(url)
            except InvalidInputError as error:
                self._fault(f"{at}/servers/0/url", str(error))
                return ""
        self._fault("/servers", "no server is named: give base_url")
        return ""

    def _complete(self, schema: dict[str, Any], side: _Side) -> dict[str, Any]:
        """Return a schema with the definitions that it reaches."""
        definitions: dict[str, Any] = {}
        waiting = list(_references(schema))
        while waiting:
            name = waiting.pop()
            if name in definitions:
                continue
            definitions[name] = self._definitions[side][name]
            waiting.extend(_references(definitions[name]))
        return {**schema, "$defs": definitions} if definitions else schema

    def _check(self, schema: dict[str, Any], where: str) -> None:
        try:
            SchemaCheck(schema)
        except InvalidInputError as error:
            self._fault(where, str(error))

    def _converted(self, schema: Any, side: _Side) -> Any:
        """Return a schema of the document as JSON Schema 2020-12, with references into ``$defs``."""
        if isinstance(schema, list):
            return [self._converted(item, side) for item in schema]
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = {"$ref": f"#/$defs/{self._define(reference, side)}"}
            if self._is_30:
                # Siblings of a reference mean nothing in 3.0, but many documents mean this one.
                return _or_null(target) if schema.get("nullable") is True else target
            siblings = {key: item for key, item in schema.items() if key != "$ref"}
            return {**(self._converted(siblings, side) if siblings else {}), **target}
        found: dict[str, Any] = {}
        for key, item in schema.items():
            if key in _DOCUMENTATION or (key.startswith("x-") and key != "x-sensitive"):
                continue
            if key in ("properties", "patternProperties", "$defs", "dependentSchemas") and isinstance(item, Mapping):
                found[key] = {name: self._converted(each, side) for name, each in item.items()}
            elif key == "required" and isinstance(item, list):
                found[key] = [name for name in item if not self._is_of_other_side(schema, name, side)]
            elif key in ("enum", "const", "default", "required"):
                found[key] = item
            else:
                found[key] = self._converted(item, side)
        return _without_dialect(found) if self._is_30 else found

    def _is_of_other_side(self, schema: Mapping[str, Any], name: Any, side: _Side) -> bool:
        properties = schema.get("properties")
        described = properties.get(name) if isinstance(properties, Mapping) and isinstance(name, str) else None
        if isinstance(described, Mapping) and isinstance(described.get("$ref"), str) and self._is_30:
            described = self._find(described["$ref"])
        return isinstance(described, Mapping) and described.get(_NOT_REQUIRED[side]) is True

    def _define(self, reference: str, side: _Side) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", reference.removeprefix("#/components/schemas/").removeprefix("#/"))
        if len(name) > NAME_LENGTH_MAX or "/" in reference.removeprefix("#/components/schemas/"):
            name = _shortened(name, reference)
        known = self._definitions[side]
        if name not in known:
            known[name] = {}  # before it is converted: a schema may contain itself
            known[name] = self._converted(self._find(reference), side)
        return name


def _without_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    """Rewrite what OpenAPI 3.0 has instead of JSON Schema: nullable, and boolean exclusive bounds."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)
    if schema.pop("nullable", False) is True:
        if isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
                schema["enum"] = [*schema["enum"], None]
        elif schema.keys() & {"allOf", "anyOf", "oneOf"}:
            return _or_null(schema)  # without a type it means nothing in 3.0, but many documents mean this
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    notes: dict[str, Any] = {key: schema.pop(key) for key in ("title", "description", "default") if key in schema}
    return {**notes, "anyOf": [schema, {"type": "null"}]}


def _references(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            reference = each.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/$defs/"):
                yield reference.removeprefix("#/$defs/")
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def tool_name(text: str) -> str:
    """Return a name that models accept: letters, digits, ``_`` and ``-``, at most 64; a longer one ends with a hash."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-") or "operation"
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    return name if len(name) <= NAME_LENGTH_MAX else _shortened(name, text)


def _shortened(name: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{name[: NAME_LENGTH_MAX - 11]}_{digest}"


def check_url(url: str) -> str:
    """Return the URL of a server, without a slash at its end.

    Raises:
        InvalidInputError: it is not an absolute http or https URL, or has a user, a query or a fragment.
    """
    problem = None
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            problem = "must be an absolute http or https URL"
        elif "@" in parts.netloc:
            problem = "must have no user: name a credential instead"
        elif parts.query or parts.fragment:
            problem = "must have neither query nor fragment"
        elif not url.isascii() or not url.isprintable() or " " in url or len(url) > 2048:
            problem = "must have at most 2,048 printable ASCII characters"
    except ValueError:
        problem = "must be an absolute http or https URL"
    if problem:
        raise InvalidInputError(f"a server's URL {problem}")
    return url.rstrip("/")


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON."""
    named = media_type.partition(";")[0].strip().lower()
    return named == "application/json" or named.endswith("+json")


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
