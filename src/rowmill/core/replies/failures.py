"""What counts as what: status, headers and body of a reply, or a fault of the network, as a `Failure`.

The one place where foreign error codes and wordings are known.  Must not know what follows from a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from rowmill.core.limits.retry_after import asked_wait_s, retry_after_s
from rowmill.core.replies.html import without_tags
from rowmill.core.shortening import shortened
from rowmill.errors import FailureKind
from rowmill.failure_kinds import ADVICE
from rowmill.records import Failure

EXCERPT_CHARS = 500

_MESSAGE_CHARS = 300
_HTML_READ_BYTES = 20_000
# Codes and types of many dialects in lower case; the numbers are Zhipu's.
_QUOTA = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "exceeded_current_quota_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "arrearage",
        "1113",
    }
)
_THROTTLE = frozenset({"slow_down", "overloaded_error", "rate_limit_exceeded", "rate_limit_error"})
_FILTER = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "data_inspection_failed",
        "datainspectionfailed",
        "1301",
    }
)
_CONTEXT = frozenset({"context_length_exceeded", "exceed_context_size_error", "1261"})
_CONTEXT_WORDS = re.compile(
    r"maximum context length|context (?:length|size|window).{0,80}(?:exceed|too long)|"
    r"exceeds?.{0,60}context (?:length|size|window)|prompt is too long|"
    r"input token count.{0,40}exceeds|range of input length should be|exceeded model token limit",
    re.IGNORECASE,
)
_LOADING = frozenset({"unavailable_error"})  # llama.cpp's, with 503: it listens before it has its model
_MODEL = frozenset(
    {
        "model_not_found",
        "modelnotfound",
        "model_not_exist",
        "model_not_available",
        "invalid_model",
        "deploymentnotfound",
        "1211",
    }
)
_MODEL_WORDS = re.compile(
    r"\bmodel\b.{0,200}(?:not exist|not found|not available|not loaded|unknown)|no endpoints found|"
    r"(?:unknown|no such) model|^model: \S+$",
    re.IGNORECASE | re.DOTALL,
)
# A 400 is the row's own fault unless the whole message says this.
_MODEL_SENTENCE = re.compile(r"(?:the )?model\b.{0,120}\b(?:not exist|not found)\.?", re.IGNORECASE)
# A 403 that is about the input and not about the key (OpenRouter's words: "requires moderation", "your input was
# flagged"; https://openrouter.ai/docs/api-reference/errors).
_FLAGGED_WORDS = re.compile(
    r"\b(?:input|prompt|content|message)\b.{0,80}\bflagged\b|requires moderation", re.IGNORECASE
)
_RETRIED = frozenset({408, 409, 425, 499})
_BY_TYPE = {"invalid_request_error": 400, "authentication_error": 401, "permission_error": 403}


class _Fault(NamedTuple):
    """An error body, read.  `codes` are its code, type and inner code in lower case."""

    message: str
    code: str | None = None
    param: str | None = None
    codes: frozenset[str] = frozenset()
    status: int | None = None
    structured: bool = False


def classify(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Failure | None:
    """The failure that a reply is, None for one that may be an answer.

    `headers` have lower-case names, `now` is Unix time.  A 200 with an error body counts by its inner code.
    """
    if 200 <= status < 300:
        if b'"error"' not in body:
            return None
        fault = _fault_inside(body)
        if fault is None:
            return None
        inner = fault.status or _status_named(fault)
        return _failure(inner, fault, headers, body, now, f"HTTP {status} with error {fault.status or ''}".strip())
    fault = _read_fault(body)
    if 300 <= status < 400:
        location = headers.get("location", "").partition("?")[0]
        return _bad_request(status, f"HTTP {status} redirects to {location or 'nowhere'}; give that URL in --url")
    return _failure(status, fault, headers, body, now, f"HTTP {status}")


def _failure(status: int, fault: _Fault, headers: Mapping[str, str], body: bytes, now: float, seen: str) -> Failure:
    kind = _kind(status, fault, headers, now)
    throttled = kind is FailureKind.THROTTLED
    advice = _advice(kind, status, fault)
    words = f"{seen} {fault.code}" if fault.code and fault.code != str(status) else seen
    message = f"{words}: {fault.message}" if fault.message else words
    return Failure(
        kind=kind,
        message=message.removesuffix(".") + advice if advice else message,
        status_code=status,
        code=fault.code,
        param=fault.param,
        retry_after_s=asked_wait_s(headers, now) if throttled else retry_after_s(headers, now),
        retry=_RETRY_WORDS.get(headers.get("x-should-retry", "").strip().lower()),
        excerpt=excerpt(body),
    )


_RETRY_WORDS = {"true": True, "false": False}


def _kind(status: int, fault: _Fault, headers: Mapping[str, str], now: float) -> FailureKind:
    codes = fault.codes
    if status == 402 or (
        400 <= status < 500
        and (codes & _QUOTA or any(code.endswith("_spend_limit_exceeded") for code in codes))
        and retry_after_s(headers, now) is None
    ):
        return FailureKind.QUOTA
    if status in (429, 529) or "slow_down" in codes or "overloaded_error" in codes:
        return FailureKind.THROTTLED
    if status == 503 and retry_after_s(headers, now) is not None:
        return FailureKind.THROTTLED
    if status == 503 and codes & _LOADING:
        return FailureKind.UNREACHABLE
    if codes & _FILTER:
        return FailureKind.FILTERED
    if status == 401:
        return FailureKind.CREDENTIALS
    if status == 403:
        return FailureKind.FILTERED if _FLAGGED_WORDS.search(fault.message) else FailureKind.FORBIDDEN
    if status >= 500 or status in _RETRIED:
        return FailureKind.SERVER
    return _request_kind(status, fault)


def _request_kind(status: int, fault: _Fault) -> FailureKind:
    """Of the statuses that blame the request."""
    if fault.codes & _CONTEXT or (status != 404 and _CONTEXT_WORDS.search(fault.message)):
        return FailureKind.CONTEXT_LENGTH
    if fault.codes & _MODEL:
        return FailureKind.MODEL_MISSING
    words = _MODEL_WORDS.search if status == 404 else _MODEL_SENTENCE.fullmatch
    if fault.structured and words(fault.message):
        return FailureKind.MODEL_MISSING
    return FailureKind.BAD_REQUEST


def _advice(kind: FailureKind, status: int, fault: _Fault) -> str:
    if kind is FailureKind.BAD_REQUEST and status in (404, 405):
        return "; check --url"
    if kind is FailureKind.BAD_REQUEST and fault.param and "unsupported_parameter" in fault.codes:
        if fault.param == "max_tokens":
            return "; use --param max_completion_tokens=N instead of --max-tokens"
        return f"; leave out {fault.param}"
    return ADVICE[kind]


def _bad_request(status: int, message: str) -> Failure:
    return Failure(FailureKind.BAD_REQUEST, message, status_code=status, code="redirect")


# --- error bodies -----------------------------------------------------------------------------------------


def _read_fault(body: bytes) -> _Fault:
    """The error in a body of any shape: JSON of many dialects, plain text or HTML."""
    try:
        read = msgspec.json.decode(body)
    except ValueError:
        return _Fault(excerpt(body)[:_MESSAGE_CHARS])
    if isinstance(read, list):
        read = read[0] if read else None
    if isinstance(read, str):
        return _Fault(_short(read))
    return _fault_from(read) if isinstance(read, dict) else _Fault("")


def _fault_inside(body: bytes) -> _Fault | None:
    """The error in a body that came with a success, None where there is none."""
    try:
        read = msgspec.json.decode(body)
    except ValueError:
        return None
    if isinstance(read, list) and read:
        read = read[0]
    if not isinstance(read, dict):
        return None
    if read.get("error") or read.get("object") == "error":
        return _fault_from(read)
    choices = read.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and choices[0].get("error"):
        return _fault_from(choices[0])
    return None


def _fault_from(read: dict[str, Any]) -> _Fault:
    error = read.get("error")
    inner: dict[str, Any] = error if isinstance(error, dict) else read
    message = error if isinstance(error, str) else inner.get("message") or inner.get("detail") or inner.get("msg")
    if isinstance(message, dict):
        message = message.get("detail") or message.get("message") or message
    deeper = inner.get("innererror") or inner.get("inner_error")
    named = [inner.get("code"), inner.get("type"), inner.get("status")]
    if isinstance(deeper, dict):
        named.append(deeper.get("code"))
    codes = [str(code) for code in named if isinstance(code, str | int) and not isinstance(code, bool)]
    code = next((code for code in codes if not code.isdigit()), codes[0] if codes else None)
    param = inner.get("param")
    return _Fault(
        message=_short(_worded(message)),
        code=code,
        param=param if isinstance(param, str) else None,
        codes=frozenset(code.lower() for code in codes),
        status=next((int(code) for code in codes if code.isdigit() and 400 <= int(code) <= 599), None),
        structured=True,
    )


def _worded(message: object) -> str:
    """A message as text: FastAPI lists its faults as {loc, msg}."""
    if isinstance(message, list):
        return "; ".join(_worded(one) for one in message[:3])
    if isinstance(message, Mapping):
        if "msg" in message:
            loc = message.get("loc")
            path = ".".join(str(part) for part in loc) if isinstance(loc, list) else ""
            return f"{path}: {message['msg']}" if path else str(message["msg"])
        return msgspec.json.encode(message).decode()
    return "" if message is None else str(message)


def _status_named(fault: _Fault) -> int:
    """The status that an error without a number stands for; unknown ones are the server's."""
    if fault.codes & (_THROTTLE | _QUOTA):
        return 429
    if fault.codes & (_FILTER | _CONTEXT):
        return 400
    if fault.codes & _MODEL:
        return 404
    return next((status for name, status in _BY_TYPE.items() if name in fault.codes), 500)


def excerpt(body: bytes) -> str:
    """The start of a body for people: at most 500 characters, tags and runs of white space taken out."""
    if b"<" in body[:200]:
        body = without_tags(body[:_HTML_READ_BYTES])
    text = body[: EXCERPT_CHARS * 8].decode("utf-8", "replace")
    return " ".join(text.split())[:EXCERPT_CHARS]


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _MESSAGE_CHARS)


# --- faults of the network, made by transports; `origin` is host:port, never more of the URL ----------------


def timed_out(origin: str, timeout_s: float) -> Failure:
    """The attempt's deadline passed after the request may have been sent."""
    message = f"no full reply from {origin} within {timeout_s:g} s; it may be billed; try a longer --timeout-s"
    return Failure(FailureKind.TIMEOUT, message)


def unreachable(origin: str, why: str) -> Failure:
    """No connection; nothing was sent."""
    return Failure(FailureKind.UNREACHABLE, f"cannot connect to {origin}: {why}")


def connection_reset(origin: str, why: str) -> Failure:
    """The connection was lost before a whole reply head came."""
    return Failure(FailureKind.RESET, f"{origin} closed the connection without a reply: {why}")


def untrusted(origin: str, why: str) -> Failure:
    """The certificate is not trusted, or there is no TLS at all."""
    message = f"TLS with {origin} failed: {why}; --ca-file names a certificate to trust"
    return Failure(FailureKind.TLS, message)


def unreadable(why: str, body: bytes = b"", status: int | None = None) -> Failure:
    """A reply that cannot be read: empty, cut, HTML, not UTF-8, not the shape that was asked for."""
    return Failure(FailureKind.UNREADABLE, why, status_code=status, excerpt=excerpt(body))
