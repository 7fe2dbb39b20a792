"""Limits that a reply's headers announce, in every provider's dialect; reading only.

It must not know what is done with them.  Waits asked for by headers are read in `retry_after`.

    OpenAI, Azure     x-ratelimit-limit-requests, -tokens; x-ratelimit-remaining-*; reset 6m0s, 60ms, 1
    Anthropic         anthropic-ratelimit-requests-limit, -tokens-, -input-tokens-, -output-tokens-; reset RFC 3339
    Groq              OpenAI's, but -requests counts a day
    Fireworks         OpenAI's, with -tokens-prompt and -tokens-generated
    Cerebras, Mistral x-ratelimit-limit-requests-minute, -requests-day, -tokens-minute, -tokens-day, ...
    others            ratelimit-limit or x-ratelimit-limit, with ratelimit-policy: 100;w=60
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rowmill.core.limits.rate import Limits
from rowmill.core.limits.retry_after import parse_wait_s

MARKS = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-input-tokens-limit",
    "x-ratelimit-limit-requests-minute",
    "x-ratelimit-limit-tokens-minute",
    "x-ratelimit-limit-tokens-prompt",
    "x-ratelimit-limit-req-minute",
    "x-ratelimit-limit",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit",
)
LONGEST_WINDOW_S = 61.0

announce_nothing = frozenset(MARKS).isdisjoint

_NUMBER = re.compile(r"\s*(\d{1,15})(?:\.\d*)?\s*")
_WINDOW = re.compile(r";\s*w\s*=\s*(\d{1,9})")
_QUOTA = re.compile(r"(?:;\s*q|\blimit)\s*=\s*(\d{1,15})")
_LEADING = re.compile(r"\s*(\d{1,15})")

_REQUESTS = (
    ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
    ("x-ratelimit-limit-requests-minute", "x-ratelimit-remaining-requests-minute", ""),
    ("x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute", ""),
)
_TOKENS = (
    ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute", ""),
)
# Anthropic's combined figure is the strictest limit of the moment, so it counts only where the two are missing.
_COMBINED = (
    ("anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
)
_INPUT = (
    (
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ),
    ("x-ratelimit-limit-tokens-prompt", "x-ratelimit-remaining-tokens-prompt", ""),
)
_OUTPUT = (
    (
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ),
    ("x-ratelimit-limit-tokens-generated", "x-ratelimit-remaining-tokens-generated", ""),
)


class Remaining(NamedTuple):
    """What the server says is left of each limit; None where it does not say."""

    requests: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Announced(NamedTuple):
    """Limits a minute and what is left of them."""

    limits: Limits
    remaining: Remaining


class _Figure(NamedTuple):
    limit: int | None = None
    remaining: int | None = None


_UNKNOWN = _Figure()


class Announcements:
    """Tells a lane when the announced limits have changed; cheap for every other reply."""

    def __init__(self, dialect: str | None = None) -> None:
        self._dialect = dialect
        self._seen: tuple[str | None, ...] = (None,) * len(MARKS)

    def changed(self, headers: Mapping[str, str], now: float) -> Limits | None:
        """The limits that these headers announce, None where they are as before; see `announced`."""
        seen = tuple(map(headers.get, MARKS))
        if seen == self._seen:
            return None
        found = announced(headers, now, self._dialect)
        if found is None:
            return None
        self._seen = seen
        return found.limits


def announced(headers: Mapping[str, str], now: float, dialect: str | None = None) -> Announced | None:
    """What the headers (lower-case names) announce a minute; None where they announce nothing.

    `now` is Unix time.  `dialect` is the preset's: `groq` says that requests count a day.  Without it a daily
    limit is told by Groq's own headers or by how long it takes to fill; limits of other periods are left out.
    """
    for mark in MARKS:
        if mark in headers:
            break
    else:
        return None
    daily = dialect == "groq" or "x-groq-region" in headers
    requests = _UNKNOWN if daily else _first(headers, _REQUESTS, now)
    if requests is _UNKNOWN and not daily:
        requests = _generic(headers, now)
    tokens, tokens_in, tokens_out = (_first(headers, names, now) for names in (_TOKENS, _INPUT, _OUTPUT))
    if tokens_in is _UNKNOWN and tokens_out is _UNKNOWN and tokens is _UNKNOWN:
        tokens = _first(headers, _COMBINED, now)
    figures = (requests, tokens, tokens_in, tokens_out)
    if all(figure is _UNKNOWN for figure in figures):
        return None
    limits = Limits(*(figure.limit for figure in figures))
    return Announced(limits, Remaining(*(figure.remaining for figure in figures)))


def _first(headers: Mapping[str, str], names: tuple[tuple[str, str, str], ...], now: float) -> _Figure:
    for limit_name, remaining_name, reset_name in names:
        limit = _number(headers.get(limit_name))
        if limit:
            remaining = _number(headers.get(remaining_name))
            if _is_by_the_minute(limit, remaining, headers.get(reset_name), now):
                return _Figure(limit, remaining)
    return _UNKNOWN


def _is_by_the_minute(limit: int, remaining: int | None, reset: str | None, now: float) -> bool:
    """Whether the limit fills within a minute, as far as its reset header tells.

    Groq's 14,400 a day with 14,370 left fills in 2m59s: 6 s a request where a limit a minute would take 4 ms.
    """
    reset_s = parse_wait_s(reset, now) if reset else None
    if reset_s is None:
        return True
    if reset_s > LONGEST_WINDOW_S:
        return False
    return not (
        remaining is not None
        and limit >= 1000
        and limit - remaining >= 1
        and 0.9 < reset_s * limit / (limit - remaining) / 86400.0 < 1.1
    )


def _generic(headers: Mapping[str, str], now: float) -> _Figure:
    """`ratelimit-limit` and its kin: counted only where the window is stated, or told to be a minute at most."""
    policy = headers.get("ratelimit-policy", "")
    text = headers.get("ratelimit-limit") or headers.get("x-ratelimit-limit") or headers.get("ratelimit") or policy
    quota = _LEADING.match(text) or _QUOTA.search(text) or _QUOTA.search(policy) or _LEADING.match(policy)
    window = _WINDOW.search(policy) or _WINDOW.search(text)
    if quota is None or window is None or not 0 < int(window[1]) <= LONGEST_WINDOW_S:
        return _UNKNOWN
    per_min = int(quota[1]) * 60 // int(window[1])
    remaining = _number(headers.get("ratelimit-remaining") or headers.get("x-ratelimit-remaining"))
    return _Figure(per_min, remaining) if per_min else _UNKNOWN


def _number(text: str | None) -> int | None:
    """A whole number that is not negative, else None."""
    found = _NUMBER.fullmatch(text) if text else None
    return int(found[1]) if found else None
