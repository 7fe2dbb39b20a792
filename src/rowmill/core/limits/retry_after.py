"""Reads how long a server asks to wait: Retry-After and reset headers in all their forms.

Must not know what the wait is for: `failures` and the lane's rates decide that.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(r"\d{1,15}(?:\.\d+)?|\.\d+")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|h|m|s|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")
_UNIT_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_RESET = re.compile(r"(?:x-)?ratelimit-reset(?:-(?P<a>.+))?|anthropic-ratelimit-(?P<b>.+)-reset")

_UNIX_FROM = 1e9  # numbers from here on are Unix time, not seconds to wait
_UNIX_MS_FROM = 1e12
_LONGEST_S = 31 * 86400.0  # a longer wait is nonsense
_SKEW_S = 5.0


def asked_wait_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks to wait, None where it does not say (or says nonsense).

    `headers` have lower-case names, `now` is Unix time.  Retry-After counts first, then the largest reset
    header (of the used-up limits where any is used up: Groq's request limit fills over a day).
    """
    wait_s = retry_after_s(headers, now)
    return reset_s(headers, now) if wait_s is None else wait_s


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that `retry-after-ms` or `retry-after` asks for, None where neither does."""
    in_ms = headers.get("retry-after-ms")
    if in_ms is not None and _NUMBER.fullmatch(in_ms.strip()):
        return float(in_ms) / 1000
    text = headers.get("retry-after")
    return None if text is None else parse_wait_s(text, _server_now(headers, now))


def reset_s(headers: Mapping[str, str], now: float) -> float | None:
    """The largest wait among the reset headers of used-up limits, or of all limits where none is used up."""
    waits_s = []
    used_up_s = []
    for name, text in headers.items():
        found = _RESET.fullmatch(name)
        wait_s = parse_wait_s(text, _server_now(headers, now)) if found else None
        if wait_s is None:
            continue
        waits_s.append(wait_s)
        if headers.get(name.replace("reset", "remaining"), "").strip() == "0":
            used_up_s.append(wait_s)
    return max(used_up_s or waits_s, default=None)


def parse_wait_s(text: str, now: float) -> float | None:
    """Seconds from `60`, `0.5`, `6m0s`, `500ms`, an HTTP date, RFC 3339 or Unix time (also in ms).

    None for nonsense, for the past and for more than a month.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        wait_s = float(text)
        if wait_s >= _UNIX_FROM:
            wait_s = (wait_s / 1000 if wait_s >= _UNIX_MS_FROM else wait_s) - now
    elif _DURATION.fullmatch(text):
        wait_s = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
    else:
        at = _moment(text)
        if at is None:
            return None
        wait_s = at - now
    return wait_s if 0 <= wait_s <= _LONGEST_S else None


def _moment(text: str) -> float | None:
    """Unix time of a date in words or in RFC 3339."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(text)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def _server_now(headers: Mapping[str, str], now: float) -> float:
    """The server's clock where it differs from ours: its dates are meant by it."""
    stated = headers.get("date")
    server_now = _moment(stated) if stated else None
    return now if server_now is None or abs(server_now - now) <= _SKEW_S else server_now
