"""The bodies that the simulator sends: completions right and wrong, and values that fit a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from rowmill.simulator.script import Fault, Step
from rowmill.simulator.shapes import shaped_result

if TYPE_CHECKING:
    from rowmill.simulator.behaviour import Behaviour, ReadRequest

_encode = msgspec.json.encode
_PAGE = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>"


class Body(NamedTuple):
    """What goes over the wire, and the usage it reports."""

    content: bytes
    content_type: str = "application/json"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


def body_of(step: Step, request: ReadRequest, behaviour: Behaviour, number: int) -> Body:
    """The body for one step; `number` makes its id."""
    if step.body is not None:
        return Body(step.body)
    fault = step.fault
    if fault is Fault.ERROR or fault is Fault.ERROR_200:
        return Body(_error(step))
    if fault is Fault.HTML:
        page = _PAGE + "<p>The server is on a break.</p>" * 1600 + "</body></html>"
        return Body(page.encode(), "text/html; charset=utf-8")
    if fault is Fault.EMPTY:
        return Body(b"")
    if fault is Fault.NO_CHOICES:
        return Body(b'{"id":"sim","object":"chat.completion","choices":[]}')
    if fault is Fault.NULL:
        return Body(b'{"id":null,"object":null,"choices":null,"usage":null,"model":null}')
    body = _completion(step, request, behaviour, number)
    if fault is Fault.BAD_ENCODING:
        return body._replace(content=body.content.replace(b'"content":"', b'"content":"\xff\xfe\xc3', 1))
    return body


def _error(step: Step) -> bytes:
    code: str | int | None = step.code
    if step.fault is Fault.ERROR_200 and step.code is not None and step.code.isdigit():
        code = int(step.code)
    message = step.message or f"The simulator answers {step.status} by its script."
    error = {"message": message, "type": step.error_type or "simulated_error", "param": None, "code": code}
    return _encode({"choices": None, "error": error} if step.fault is Fault.ERROR_200 else {"error": error})


def _completion(step: Step, request: ReadRequest, behaviour: Behaviour, number: int) -> Body:
    text: str | None = step.text if step.text is not None else _answer(request, behaviour)
    fault = step.fault
    finish, extra = b"stop", b""
    if fault is not Fault.OK:
        text, finish, extra = _spoiled(fault, text)
    output_tokens = min(behaviour.output_tokens, request.max_tokens or behaviour.output_tokens)
    if request.shape != "chat":
        tokens = (request.input_tokens, output_tokens)
        content = shaped_result(request, text, finish.decode(), tokens, number)
        return Body(content, "application/json", *tokens)
    cached_tokens = int(request.input_tokens * behaviour.cached_share)
    usage = b"null"
    if fault is not Fault.NO_USAGE:
        usage = (
            b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d}}'
        ) % (request.input_tokens, output_tokens, request.input_tokens + output_tokens, cached_tokens)
    content = (
        b'{"id":"sim-%d","object":"chat.completion","created":1700000000,"model":%b,"choices":[{"index":0,'
        b'"message":{"role":"assistant","content":%b%b},"finish_reason":"%b"}],"usage":%b}'
    ) % (number, _encode(request.model), _encode(text), extra, finish, usage)
    return Body(content, "application/json", request.input_tokens, output_tokens, cached_tokens)


def _spoiled(fault: Fault, text: str | None) -> tuple[str | None, bytes, bytes]:
    """Content, finish reason and further fields of the message."""
    whole = text or ""
    if fault is Fault.LENGTH:
        return whole[: max(1, len(whole) // 2)], b"length", b""
    if fault is Fault.LENGTH_NULL:
        return None, b"length", b',"reasoning_content":"Let me think about it"'
    if fault is Fault.FILTERED:
        return None, b"content_filter", b""
    if fault is Fault.REFUSED:
        return None, b"stop", b',"refusal":"I cannot help with that."'
    if fault is Fault.THINK:
        return f"<think>\nA thought.\n</think>\n\n{whole}", b"stop", b""
    if fault is Fault.REASONING:
        return whole, b"stop", b',"reasoning_content":"A thought."'
    if fault is Fault.FENCED:
        return f"```json\n{whole}\n```", b"stop", b""
    if fault is Fault.BAD_JSON:
        return "this is not { JSON", b"stop", b""
    return text, b"stop", b""


def _answer(request: ReadRequest, behaviour: Behaviour) -> str:
    text = request.token if behaviour.answer == "{token}" else behaviour.answer.replace("{token}", request.token)
    if request.schema is not None:
        schema = msgspec.json.decode(request.schema)
        return _encode(fitting(schema, text or "ok", schema)).decode()
    if request.wants_json:
        return _encode({"answer": text or "ok"}).decode()
    return text or "ok"


def fitting(schema: Any, text: str, root: Any) -> Any:
    """A value that fits a JSON Schema: strings are `text`, and of several choices `text` picks one."""
    if not isinstance(schema, Mapping):
        return text
    if "$ref" in schema:
        return fitting(_resolved(str(schema["$ref"]), root), text, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][crc32(text.encode()) % len(schema["enum"])]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return fitting(schema[choice][0], text, root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        parts = schema.get("properties", {})
        return {name: fitting(part, text, root) for name, part in parts.items()}
    if kind == "array":
        return [fitting(schema.get("items", {}), text, root)] * max(1, schema.get("minItems", 1))
    if kind in ("integer", "number"):
        return schema.get("minimum", 0 if kind == "integer" else 0.5)
    return {"boolean": True, "null": None}.get(kind, text)


def _resolved(reference: str, root: Any) -> Any:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")] if part else found
    return found
