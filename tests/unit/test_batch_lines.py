"""The lines of a batch file's results, in the Batch API's shape and in vLLM's."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rowmill.core.rows.outputs.batch_result_lines import (
    answered_line,
    error_line,
    is_answered,
    one_line,
    run_batch_error_line,
)
from rowmill.records import LastAttempt, Outcome, Status

REPLY = b'{"id":"c","n":123456789012345678901234,"x":0.10,"t":"\xe2\x86\x92 \xf0\x9f\x98\x80"}'
REFUSAL = b'{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context"}}'


def outcome(status: Status, error: str | None = None) -> Outcome:
    return Outcome(7, status, None, error, "e", "m", 1, 0.1, 1, 1, None, None)


def attempt(status_code: int | None = 200, body: bytes | None = REPLY, kind: str | None = None) -> LastAttempt:
    return LastAttempt(kind, status_code, "req-1", body)


def written(line: Any) -> Any:
    return json.loads(msgspec.json.encode(line))


FAILED = outcome(Status.FAILED, "HTTP 400: too long")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (REPLY, REPLY),
        (b'{\n  "a": [\r\n 1,\n2]\n}\n', b'{   "a": [   1, 2] }'),
        (b'{"t":"\\u99ac \\ud83d\\ude00","n":1e400,"i":123456789012345678901234,"f":0.1}', None),
        (b'{"t":"\\ud83d"}', b'{"t":"\\ud83d"}'),
        (b'{"t":"a\\nb\\u0000"}', b'{"t":"a\\nb\\u0000"}'),
    ],
)
def test_a_body_stands_on_one_line_untouched_and_unescaped(body: bytes, line: bytes | None) -> None:
    found = bytes(one_line(body))
    assert b"\n" not in found
    assert found == ('{"t":"馬 😀","n":1E+400,"i":123456789012345678901234,"f":0.1}'.encode() if line is None else line)


def test_an_answered_row_has_the_reply_as_it_came() -> None:
    encoded = msgspec.json.encode(answered_line("a", outcome(Status.OK), attempt()))
    assert REPLY in encoded
    assert written(answered_line("a", outcome(Status.OK), attempt())) == {
        "id": "batch_req_7",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req-1", "body": json.loads(REPLY)},
        "error": None,
    }


@pytest.mark.parametrize(
    ("status", "last", "answered"),
    [
        (Status.OK, attempt(), True),
        (Status.TRUNCATED, attempt(), True),
        (Status.REFUSED, attempt(), True),
        (Status.FILTERED, attempt(), True),
        (Status.FILTERED, attempt(400), False),
        (Status.FAILED, attempt(), False),
        (Status.FAILED, None, False),
        (Status.FAILED, attempt(None, None), False),
    ],
)
def test_a_reply_goes_into_the_output_and_everything_else_among_the_errors(
    status: Status, last: LastAttempt | None, answered: bool
) -> None:
    assert is_answered(outcome(status), last) is answered


def test_a_refusal_is_a_response_with_the_servers_own_error() -> None:
    assert written(error_line("a", FAILED, attempt(400, REFUSAL, "bad_request"), is_row=True)) == {
        "id": "batch_req_7",
        "custom_id": "a",
        "response": {"status_code": 400, "request_id": "req-1", "body": json.loads(REFUSAL)},
        "error": None,
    }


@pytest.mark.parametrize("body", [b"<html>", REFUSAL[:40], b"", None, b'"text"'])
def test_a_refusal_that_is_no_json_is_put_into_our_words(body: bytes | None) -> None:
    line = written(error_line("a", FAILED, attempt(502, body, "server"), is_row=True))
    assert line["response"]["status_code"] == 502
    assert line["response"]["body"]["error"]["message"] == "HTTP 400: too long"
    assert line["response"]["body"]["error"]["code"] == "server"


@pytest.mark.parametrize(
    ("last", "is_row", "code"),
    [
        (None, False, "invalid_json_line"),
        (None, True, "invalid_request"),
        (attempt(None, None, "timeout"), True, "timeout"),
        (attempt(200, b"", "unreadable"), True, "unreadable"),
    ],
)
def test_an_end_without_a_refusal_is_an_error_with_a_code(last: LastAttempt | None, is_row: bool, code: str) -> None:
    line = written(error_line(None, FAILED, last, is_row=is_row))
    assert line["response"] is None
    assert line["error"] == {"code": code, "message": "HTTP 400: too long"}
    line = written(run_batch_error_line(None, FAILED, last, is_row=is_row))
    assert line["response"] is None
    assert line["error"]["error"]["code"] == code


def test_in_vllms_form_the_error_is_filled_and_the_body_empty() -> None:
    line = written(run_batch_error_line("a", FAILED, attempt(400, REFUSAL), is_row=True))
    assert line["response"] == {"status_code": 400, "request_id": "req-1", "body": None}
    assert line["error"] == json.loads(REFUSAL)


def test_a_request_id_that_the_server_did_not_give_is_empty_text() -> None:
    line = written(answered_line("a", outcome(Status.OK), attempt().replaced(request_id=None)))
    assert line["response"]["request_id"] == ""
