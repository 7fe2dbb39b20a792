"""What counts as what: the table of statuses, codes and bodies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.core.replies.failures import classify, excerpt
from rowmill.errors import FailureKind

if TYPE_CHECKING:
    from rowmill.records import Failure

NOW = 1_700_000_000.0


def failure(status: int, body: object = "", headers: dict[str, str] | None = None) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = classify(status, headers or {}, raw, now=NOW)
    assert found is not None
    return found


def error(code: object = None, message: str = "So it is.", **more: object) -> dict[str, object]:
    return {"error": {"message": message, "code": code, **more}}


@pytest.mark.parametrize("status", [408, 409, 425, 500, 501, 502, 503, 504, 520, 522, 524, 527])
def test_the_servers_faults_are_the_servers(status: int) -> None:
    assert failure(status).kind is FailureKind.SERVER


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (429, {}, error("rate_limit_exceeded", "You exceeded your quota of tokens per minute.")),
        (503, {"retry-after": "2"}, error()),
        (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        (503, {}, error("slow_down")),
        (429, {}, b"slow down, please"),
        (429, {"retry-after": "3"}, error("insufficient_quota")),
        (500, {}, error(None, type="overloaded_error")),
    ],
)
def test_throttles_are_told_by_status_and_code(status: int, headers: dict[str, str], body: object) -> None:
    assert failure(status, body, headers).kind is FailureKind.THROTTLED


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, error("insufficient_quota")),
        (429, error(None, type="insufficient_quota")),
        (429, error("credit_balance_exhausted")),
        (429, error("org_spend_limit_exceeded")),
        (429, error("1113", "in arrears")),
        (402, error(None, "Insufficient Balance")),
        (402, b""),
    ],
)
def test_gone_quota_is_told_by_code(status: int, body: object) -> None:
    assert failure(status, body).kind is FailureKind.QUOTA


def test_a_reset_header_does_not_make_gone_quota_a_throttle() -> None:
    found = failure(429, error("insufficient_quota"), {"x-ratelimit-reset-tokens": "1s"})
    assert found.kind is FailureKind.QUOTA


def test_a_throttle_carries_the_wait_and_a_reset_will_do() -> None:
    assert failure(429, b"", {"retry-after": "0.503"}).retry_after_s == 0.503
    assert failure(429, b"", {"x-ratelimit-reset-tokens": "1m30s"}).retry_after_s == 90.0
    assert failure(429, b"").retry_after_s is None


def test_what_the_server_says_about_retrying_is_kept() -> None:
    assert failure(500, b"", {"x-should-retry": "false"}).retry is False
    assert failure(400, b"", {"x-should-retry": "true"}).retry is True
    assert failure(400, b"", {"x-should-retry": "perhaps"}).retry is None


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404},
        {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}},
        {"error": "model 'x' not found"},
        {"error": {"message": "model 'x' not found, try pulling it first", "type": "api_error"}},
        error("model_not_found", "The model `x` does not exist or you do not have access to it."),
        error("DeploymentNotFound", "The API deployment for this resource does not exist."),
        error(404, "No endpoints found for x/y."),
    ],
)
def test_a_404_that_names_the_model_is_a_missing_model(body: object) -> None:
    found = failure(404, body)
    assert found.kind is FailureKind.MODEL_MISSING
    assert "check the model's name" in found.message


@pytest.mark.parametrize("body", [{"detail": "Not Found"}, b"404 page not found", b"<h1>no model here: not found</h1>"])
def test_a_404_without_the_model_is_a_wrong_address(body: object) -> None:
    found = failure(404, body)
    assert found.kind is FailureKind.BAD_REQUEST
    assert "--url" in found.message


def test_a_400_with_the_code_or_the_whole_sentence_is_a_missing_model() -> None:
    assert failure(400, error("invalid_model")).kind is FailureKind.MODEL_MISSING
    assert failure(400, error(None, "Model Not Exist")).kind is FailureKind.MODEL_MISSING
    quoted = error(None, "Invalid content: 'the model car was not found in the box' is too rude")
    assert failure(400, quoted).kind is FailureKind.BAD_REQUEST


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error("context_length_exceeded")),
        (400, error(400, "the request exceeds the context size", type="exceed_context_size_error")),
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 4096 tokens.",
                "code": 400,
            },
        ),
        (413, error(None, "prompt is too long: 210000 tokens > 200000 maximum")),
        (400, [{"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number"}}]),
    ],
)
def test_a_row_too_long_is_known_in_every_dialect(status: int, body: object) -> None:
    assert failure(status, body).kind is FailureKind.CONTEXT_LENGTH


@pytest.mark.parametrize(
    "body",
    [
        error("content_filter"),
        error(None, type="content_filter"),
        {"error": {"code": "400", "innererror": {"code": "ResponsibleAIPolicyViolation"}, "message": "no"}},
        error("data_inspection_failed"),
    ],
)
def test_a_content_filter_is_told_by_code(body: object) -> None:
    assert failure(400, body).kind is FailureKind.FILTERED


@pytest.mark.parametrize("status", [400, 413, 422, 405, 415, 302])
def test_other_refusals_are_the_requests_own(status: int) -> None:
    assert failure(status, error("odd")).kind is FailureKind.BAD_REQUEST


def test_keys_and_permissions_are_told_apart() -> None:
    assert failure(401, error("invalid_api_key")).kind is FailureKind.CREDENTIALS
    assert failure(403, {"detail": "Forbidden"}).kind is FailureKind.FORBIDDEN


def test_a_redirect_says_where_the_server_moved_without_its_query() -> None:
    found = failure(301, b"", {"location": "https://new.example/v1?key=secret"})
    assert "https://new.example/v1;" in found.message
    assert "secret" not in found.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"choices": None, "error": {"code": 429, "message": "Slow."}}, FailureKind.THROTTLED),
        ({"error": {"code": 502, "message": "Upstream."}}, FailureKind.SERVER),
        ({"error": {"code": "rate_limit_exceeded"}}, FailureKind.THROTTLED),
        ({"error": {"code": "insufficient_quota"}}, FailureKind.QUOTA),
        ({"error": {"code": "content_filter"}}, FailureKind.FILTERED),
        ({"error": {"message": "Bad.", "type": "invalid_request_error"}}, FailureKind.BAD_REQUEST),
        ({"error": {"message": "Who knows."}}, FailureKind.SERVER),
        ({"error": "who knows"}, FailureKind.SERVER),
        ({"object": "error", "message": "no", "code": 400}, FailureKind.BAD_REQUEST),
        ({"choices": [{"error": {"code": 502, "message": "died"}, "message": {}}]}, FailureKind.SERVER),
        ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], FailureKind.THROTTLED),
    ],
)
def test_a_200_with_an_error_counts_by_its_inner_code(body: object, kind: FailureKind) -> None:
    assert failure(200, body).kind is kind


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":{"content":"fine"}}],"error":null}',
        b'{"choices":[{"message":{"content":"{\\"error\\": 1}"}}]}',
        b'{"choices":[{"message":{"content":"error"}}]}',
        b'not json with "error" in it',
    ],
)
def test_a_200_without_an_error_is_no_failure(body: bytes) -> None:
    assert classify(200, {}, body, now=NOW) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"detail": "Not allowed"}, "HTTP 422: Not allowed"),
        ({"detail": [{"loc": ["body", "n"], "msg": "too big"}]}, "HTTP 422: body.n: too big"),
        ({"error": "plain"}, "HTTP 422: plain"),
        (b"just text", "HTTP 422: just text"),
        (b"<html><style>a{}</style><body><h1>No</h1>way</body></html>", "HTTP 422: No way"),
        (error("odd_code", "Spaces   and\nlines."), "HTTP 422 odd_code: Spaces and lines."),
        (b"", "HTTP 422"),
        (b"[]", "HTTP 422"),
        ({"message": {"detail": [{"loc": ["body"], "msg": "bad"}]}}, "HTTP 422: body: bad"),
    ],
)
def test_messages_are_short_and_say_what_the_server_said(body: object, message: str) -> None:
    assert failure(422, body).message == message


def test_an_unsupported_parameter_names_the_fix() -> None:
    found = failure(400, error("unsupported_parameter", "No.", param="max_tokens"))
    assert found.message.endswith("use --param max_completion_tokens=N instead of --max-tokens")
    assert (found.code, found.param) == ("unsupported_parameter", "max_tokens")


def test_a_page_of_fifty_kilobytes_leaves_an_excerpt() -> None:
    page = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>" + b"<p>Sorry.</p>" * 4000
    found = failure(502, page)
    assert found.kind is FailureKind.SERVER
    assert found.excerpt.startswith("502 Bad Gateway Sorry.")
    assert len(found.excerpt) == 500


def test_an_excerpt_of_bad_utf8_is_text_all_the_same() -> None:
    assert excerpt(b"\xff\xfeabc") == "��abc"


@given(
    st.integers(100, 599),
    st.binary(max_size=80),
    st.dictionaries(st.sampled_from(["retry-after"]), st.text()),
)
def test_no_reply_whatever_makes_an_exception(status: int, body: bytes, headers: dict[str, str]) -> None:
    found = classify(status, headers, body, now=NOW)
    assert (found is None) == (200 <= status < 300)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 600) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["error", "code", "message", "detail", "type", "choices", "loc", "msg"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from([200, 400, 404, 429, 500]), JSON)
def test_no_shape_of_json_makes_an_exception(status: int, body: object) -> None:
    found = classify(status, {}, json.dumps(body).encode(), now=NOW)
    assert found is not None or status == 200
