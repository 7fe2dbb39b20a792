"""Owns the lines that a batch file's results are: the Batch API's output and error files, and vLLM's one file.

Must not know files, or how replies are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rowmill.core.rows.chunks import decode_json, encode_json
from rowmill.records import LastAttempt, Outcome, Status

BATCH, RUN_BATCH = "batch", "run-batch"
# Two files as the Batch API has them, or one as vLLM's `run-batch` writes it.
RESULT_FORMS = (BATCH, RUN_BATCH)

BAD_LINE = "invalid_json_line"
BAD_REQUEST = "invalid_request"

Line = Mapping[str, Any]


def is_answered(outcome: Outcome, last: LastAttempt | None) -> bool:
    """Whether a row has a reply, whole or cut short, so that it belongs into the output and not among the errors."""
    return outcome.status is not Status.FAILED and last is not None and _is_ok(last)


def _is_ok(last: LastAttempt) -> bool:
    return last.body is not None and last.status_code is not None and last.status_code < 300


def answered_line(custom_id: Any, outcome: Outcome, last: LastAttempt) -> Line:
    """One line of the output: the reply's body as it came."""
    return _line(custom_id, outcome, _response(last, one_line(last.body or b"null")), None)


def error_line(custom_id: Any, outcome: Outcome, last: LastAttempt | None, *, is_row: bool) -> Line:
    """One line of the Batch API's error file: a refusal as `response`, every other end as `error`.

    `is_row` is false for an input line that could not be read.
    """
    if last is None or last.status_code is None or _is_ok(last):
        error = {"code": _code(last, is_row), "message": outcome.error}
        return _line(custom_id, outcome, None, error)
    return _line(custom_id, outcome, _response(last, _refusal(outcome, last)), None)


def run_batch_error_line(custom_id: Any, outcome: Outcome, last: LastAttempt | None, *, is_row: bool) -> Line:
    """The same as a line of vLLM's one file: the error filled, the body empty."""
    if last is None or last.status_code is None or _is_ok(last):
        return _line(custom_id, outcome, None, _worded(outcome, _code(last, is_row)))
    return _line(custom_id, outcome, _response(last, None), _refusal(outcome, last))


def one_line(body: bytes) -> msgspec.Raw:
    """A JSON text on one line, its values untouched and nothing escaped that need not be."""
    if b"\\u" in body:
        try:
            return msgspec.Raw(encode_json(decode_json(body)))
        except ValueError:  # half a surrogate pair can stand only as an escape
            pass
    # Between the parts of a JSON text a line end is white space, and within texts there is none.
    return msgspec.Raw(body.replace(b"\r", b" ").replace(b"\n", b" ").strip())


def _line(custom_id: Any, outcome: Outcome, response: Any, error: Any) -> Line:
    return {"id": f"batch_req_{outcome.index}", "custom_id": custom_id, "response": response, "error": error}


def _response(last: LastAttempt, body: Any) -> Line:
    return {"status_code": last.status_code, "request_id": last.request_id or "", "body": body}


def _refusal(outcome: Outcome, last: LastAttempt) -> Any:
    """The server's own words where they are whole JSON, else ours in the same shape."""
    try:
        if isinstance(decode_json(last.body or b""), dict):
            return one_line(last.body or b"")
    except ValueError:
        pass
    return _worded(outcome, _code(last, is_row=True))


def _worded(outcome: Outcome, code: str) -> Line:
    return {"error": {"message": outcome.error, "type": code, "param": None, "code": code}}


def _code(last: LastAttempt | None, is_row: bool) -> str:
    if not is_row:
        return BAD_LINE
    return BAD_REQUEST if last is None else last.kind or "unreadable"
