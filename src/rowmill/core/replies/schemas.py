"""What an answer must look like: JSON Schema or shorthand, compiled once into columns and a validator.

Must not know where a schema comes from (file, model class) nor how a reply is worded around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from rowmill.core.shortening import shortened
from rowmill.errors import JobError

TYPES = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "str": "string",
    "float": "number",
    "int": "integer",
    "bool": "boolean",
}
_NAMED = "string, number, integer, boolean, list[...], {name: type} or choices such as yes|no"
_SCHEMA_WORDS = frozenset({"$schema", "$ref", "$defs", "properties", "anyOf", "oneOf", "allOf", "enum", "items"})
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d+\.\d+")
_FAULT_CHARS = 300


class AnswerSchema:
    """A compiled schema.

    `json_schema` is what servers are sent; `strict` says whether it meets the rules of strict mode (the root
    and every object in it closed, every field required).  `columns` are (name, kind), kind one of string,
    number, integer, boolean, json; a schema whose root is no object has the one column `answer`.
    """

    __slots__ = ("_is_object", "_validator", "columns", "json_schema", "strict")

    def __init__(self, json_schema: Mapping[str, Any]) -> None:
        self._validator = _validator(json_schema)
        root = _resolved(json_schema, json_schema)
        self._is_object = _type_of(root) == "object"
        self.columns: tuple[tuple[str, str], ...] = (("answer", _kind(root, json_schema)),)
        if self._is_object:
            parts = root.get("properties", {})
            if not parts:
                raise JobError("answer.schema: the object has no properties, so the answer has no columns")
            self.columns = tuple((name, _kind(part, json_schema)) for name, part in parts.items())
        self.strict = self._is_object and all(_is_closed(part) for part in _objects(json_schema))
        self.json_schema: Mapping[str, Any] = json_schema

    def read(self, text: str) -> Mapping[str, Any] | str:
        """The answer's columns from JSON text, or the fault with its path (`$.path: what`)."""
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError) as fault:
            return f"$: not JSON: {fault}"
        if not self._validator.is_valid(value):
            return self._fault(value)
        if not self._is_object:
            value = {"answer": value}
        return {name: _exact(value.get(name), kind) for name, kind in self.columns}

    def _fault(self, value: Any) -> str:
        first = next(iter(self._validator.iter_errors(value)))
        text = f"{_json_path(first.instance_path)}: {first.message}"
        return shortened(text, _FAULT_CHARS)


def compile_schema(spec: Mapping[str, Any] | str) -> AnswerSchema:
    """Compiles a JSON Schema or shorthand (`label: yes|no, confidence: number`, or a mapping).

    Shorthand types: string, number, integer, boolean, choices `a|b|c`, `list[type]`, a nested mapping; a
    trailing `?` allows null.  Raises JobError that names the path.
    """
    if isinstance(spec, str):
        spec = _from_text(spec)
    return AnswerSchema(spec if is_json_schema(spec) else _object(spec, "answer.schema"))


def is_json_schema(spec: Mapping[str, Any]) -> bool:
    """Whether a mapping is JSON Schema and not shorthand (in which `type` may be the name of a field)."""
    if spec.get("type") in ("object", "array"):
        return True
    return any(isinstance(spec.get(word), Mapping | list) for word in _SCHEMA_WORDS) or any(
        word in spec for word in ("$schema", "$ref")
    )


# --- shorthand ---------------------------------------------------------------------------------------------


def _from_text(text: str) -> Mapping[str, Any]:
    text = text.strip()
    if text.startswith("{"):
        try:
            read = msgspec.json.decode(text)
        except ValueError:
            read = None
        if isinstance(read, dict):
            return read
        if text.endswith("}"):
            text = text[1:-1]
    return _fields(text, "answer.schema")


def _fields(text: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in _split(text, ","):
        name, colon, kind = part.partition(":")
        name = name.strip().strip("\"'")
        if not colon or not name or not kind.strip():
            raise JobError(f"{path}: {part.strip()!r} is not NAME: TYPE; types are {_NAMED}")
        if name in found:
            raise JobError(f"{path}: the field {name!r} is named twice")
        found[name] = kind.strip()
    if not found:
        raise JobError(f"{path}: no fields; write for example `sentiment: positive|negative, confidence: number`")
    return found


def _split(text: str, separator: str) -> list[str]:
    """Splits outside brackets; empty parts are dropped."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def _object(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    properties = {}
    for name, kind in fields.items():
        if not isinstance(name, str):
            raise JobError(f"{path}: the field name {name!r} is not text; put it in quotes")
        plain = name.removesuffix("?")
        read = _typed(kind, f"{path}.{plain}")
        properties[plain] = _nullable(read) if plain != name else read
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _typed(kind: Any, path: str) -> dict[str, Any]:
    if isinstance(kind, Mapping):
        return dict(kind) if is_json_schema(kind) else _object(kind, path)
    if isinstance(kind, list) and kind and all(isinstance(choice, str | int | float) for choice in kind):
        return {"enum": list(kind)}
    if not isinstance(kind, str):
        raise JobError(f"{path}: {kind!r} is not a type; types are {_NAMED}, in quotes where YAML reads otherwise")
    text = kind.strip()
    if text.endswith("?"):
        return _nullable(_typed(text[:-1], path))
    if text.startswith("list[") and text.endswith("]"):
        return {"type": "array", "items": _typed(text[5:-1], path)}
    if text.startswith("{") and text.endswith("}"):
        return _object(_fields(text[1:-1], path), path)
    if "|" in text:
        return _choices([choice.strip() for choice in text.split("|")], path)
    if text.lower() not in TYPES:
        near = get_close_matches(text.lower(), TYPES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise JobError(f"{path}: unknown type {text!r}{meant}; types are {_NAMED}")
    return {"type": TYPES[text.lower()]}


def _choices(words: Sequence[str], path: str) -> dict[str, Any]:
    if not all(words):
        raise JobError(f"{path}: an empty choice in {'|'.join(words)!r}")
    if all(_INTEGER.fullmatch(word) for word in words):
        return {"type": "integer", "enum": [int(word) for word in words]}
    if all(_INTEGER.fullmatch(word) or _NUMBER.fullmatch(word) for word in words):
        return {"type": "number", "enum": [float(word) for word in words]}
    return {"type": "string", "enum": list(dict.fromkeys(word.strip("\"'") for word in words))}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema and isinstance(schema.get("type"), str):
        return {"type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    if set(schema) == {"type"} and isinstance(schema["type"], str):
        return {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


# --- JSON Schema -------------------------------------------------------------------------------------------


def _validator(json_schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    try:
        # Offline: a reference to elsewhere must never open a connection.
        return jsonschema_rs.validator_for(dict(json_schema), validate_formats=True, offline=True)
    except jsonschema_rs.ValidationError as fault:
        raise JobError(f"answer.schema: {_json_path(fault.instance_path)}: {fault.message}") from None
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as fault:
        raise JobError(f"answer.schema: {fault}") from None


def _json_path(path: Sequence[Any]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a chain of local references ends at."""
    for _ in range(16):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        schema = root
        for part in reference[1:].strip("/").split("/"):
            if part:
                schema = schema.get(part.replace("~1", "/").replace("~0", "~"), {})
    return schema if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str | None:
    """The one type besides null, None where there are several."""
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind is None and "properties" in schema:
        return "object"
    return kind if isinstance(kind, str) else None


def _kind(part: Any, root: Mapping[str, Any]) -> str:
    """The column kind of one field."""
    schema = _resolved(part, root)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            kinds = {_kind(one, root) for one in schema[choice] if _resolved(one, root).get("type") != "null"}
            return kinds.pop() if len(kinds) == 1 else "json"
    kind = _type_of(schema)
    if kind is None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        kinds = {_KINDS.get(type(value), "json") for value in values if value is not None}
        kind = kinds.pop() if len(kinds) == 1 else "number" if kinds == {"integer", "number"} else "json"
    return kind if kind in ("string", "number", "integer", "boolean") else "json"


_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _objects(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every object schema inside a schema, itself included."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get("properties"), Mapping) or schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from _objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    required = schema.get("required")
    names = set(schema.get("properties", {}))
    return schema.get("additionalProperties") is False and isinstance(required, list) and set(required) >= names


def _exact(value: Any, kind: str) -> Any:
    """JSON Schema counts 3.0 as an integer; a typed column needs one."""
    return int(value) if kind == "integer" and isinstance(value, float) else value
