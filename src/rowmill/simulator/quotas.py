"""Limits over a sliding window and the headers that announce them; time is passed in, nothing is sent."""

from __future__ import annotations

import math
from collections import deque
from datetime import UTC, datetime
from email.utils import formatdate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rowmill.simulator.behaviour import Behaviour, ReadRequest


class Window:
    """An exact sliding window: at most `capacity` within any `span_s`."""

    __slots__ = ("_entries", "capacity", "per_min", "span_s", "used")

    def __init__(self, per_min: int, span_s: float) -> None:
        self.per_min = per_min
        self.span_s = span_s
        self.capacity = per_min * span_s / 60.0
        self.used = 0
        self._entries: deque[tuple[float, int]] = deque()

    def wait_s(self, now_s: float, amount: int) -> float:
        """Seconds until `amount` fits; 0 when it fits now; the whole span when it never will."""
        entries = self._entries
        while entries and entries[0][0] <= now_s - self.span_s:
            self.used -= entries.popleft()[1]
        over = self.used + amount - self.capacity
        if over <= 0:
            return 0.0
        for at_s, taken in entries:
            over -= taken
            if over <= 0:
                return at_s + self.span_s - now_s
        return self.span_s

    def take(self, now_s: float, amount: int) -> None:
        """Spends `amount`; call `wait_s` first."""
        self._entries.append((now_s, amount))
        self.used += amount

    def reset_s(self, now_s: float) -> float:
        """Seconds until the window is empty."""
        return self._entries[-1][0] + self.span_s - now_s if self._entries else 0.0


class Quotas:
    """The limits of one behaviour.  `admit` takes from all windows or from none."""

    def __init__(self, behaviour: Behaviour) -> None:
        limits = {
            "requests": behaviour.rpm,
            "tokens": behaviour.tpm,
            "input-tokens": behaviour.input_tpm,
            "output-tokens": behaviour.output_tpm,
        }
        self._windows = {name: Window(per_min, behaviour.window_s) for name, per_min in limits.items() if per_min}
        self._behaviour = behaviour

    def __bool__(self) -> bool:
        return bool(self._windows)

    def charge(self, request: ReadRequest) -> int:
        """Tokens that this request counts for: its input and the most it may answer."""
        return request.input_tokens + (request.max_tokens or self._behaviour.output_tokens)

    def admit(self, request: ReadRequest, now_s: float) -> float:
        """0 when admitted and counted, else the seconds to wait."""
        output_tokens = request.max_tokens or self._behaviour.output_tokens
        needs = {
            "requests": 1,
            "tokens": request.input_tokens + output_tokens,
            "input-tokens": request.input_tokens,
            "output-tokens": output_tokens,
        }
        wait_s = 0.0
        for name, window in self._windows.items():
            wait_s = max(wait_s, window.wait_s(now_s, needs[name]))
        if wait_s == 0.0:
            for name, window in self._windows.items():
                window.take(now_s, needs[name])
        return wait_s

    def headers(self, now_s: float, unix_s: float) -> str:
        """The limit headers of the dialect, as header lines."""
        dialect = self._behaviour.dialect
        if dialect == "none":
            return ""
        lines = _anthropic_lines if dialect == "anthropic" else _openai_lines
        text = "".join(line for name, window in self._windows.items() for line in lines(name, window, now_s, unix_s))
        # Groq's request headers speak of a day, only its token headers of a minute.
        if dialect == "groq":
            text = text.replace("limit-requests: ", "limit-requests: 1440")
        return text

    def retry_headers(self, wait_s: float, unix_s: float) -> str:
        """The Retry-After headers in the form that the behaviour asks for, as header lines."""
        return _RETRY_FORMS[self._behaviour.retry_after](wait_s, unix_s)


def _openai_lines(name: str, window: Window, now_s: float, unix_s: float) -> Iterator[str]:
    yield f"x-ratelimit-limit-{name}: {window.per_min}\r\n"
    yield f"x-ratelimit-remaining-{name}: {max(0, math.floor(window.capacity - window.used))}\r\n"
    yield f"x-ratelimit-reset-{name}: {_go_duration(window.reset_s(now_s))}\r\n"


def _anthropic_lines(name: str, window: Window, now_s: float, unix_s: float) -> Iterator[str]:
    reset = datetime.fromtimestamp(math.ceil(unix_s + window.reset_s(now_s)), UTC)
    yield f"anthropic-ratelimit-{name}-limit: {window.per_min}\r\n"
    yield f"anthropic-ratelimit-{name}-remaining: {max(0, math.floor(window.capacity - window.used))}\r\n"
    yield f"anthropic-ratelimit-{name}-reset: {reset.strftime('%Y-%m-%dT%H:%M:%SZ')}\r\n"


def _go_duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest_s = divmod(seconds, 60)
    return f"{int(minutes)}m{rest_s:.3f}s" if minutes else f"{rest_s:.3f}s"


_RETRY_FORMS: Mapping[str, Callable[[float, float], str]] = {
    "seconds": lambda wait_s, unix_s: f"retry-after: {math.ceil(wait_s)}\r\n",
    "fraction": lambda wait_s, unix_s: f"retry-after: {wait_s:.3f}\r\n",
    "ms": lambda wait_s, unix_s: f"retry-after-ms: {math.ceil(wait_s * 1000)}\r\n",
    "date": lambda wait_s, unix_s: f"retry-after: {formatdate(math.ceil(unix_s + wait_s), usegmt=True)}\r\n",
    "none": lambda wait_s, unix_s: "",
}
