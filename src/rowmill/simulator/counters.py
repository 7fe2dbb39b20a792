"""What the simulator saw: the figures that a test or a rehearsal is held to.  Knows nothing of sockets."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any


class _Peak:
    """The largest sum within any window of `span_s`."""

    __slots__ = ("_entries", "_sum", "most", "span_s")

    def __init__(self, span_s: float) -> None:
        self.span_s = span_s
        self.most = 0
        self._sum = 0
        self._entries: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, amount: int) -> None:
        entries = self._entries
        entries.append((now_s, amount))
        self._sum += amount
        while entries[0][0] <= now_s - self.span_s:
            self._sum -= entries.popleft()[1]
        self.most = max(self.most, self._sum)


class Counters:
    """Counts of one server since it started or was reset.  Used from its loop only."""

    def __init__(self, window_s: float, keep_log: bool) -> None:
        self.tokens: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.requests = 0
        self.in_flight = 0
        self.connections = 0
        self.first_s: float | None = None
        self._window_s = window_s
        self._keep_log = keep_log
        self._peak_in_flight = 0
        self._peak_serving = 0
        self._peak_queued = 0
        self._second = _Peak(1.0)
        self._window = _Peak(window_s)
        self._window_admitted = _Peak(window_s)
        self._window_tokens = _Peak(window_s)
        self._usage = [0, 0, 0]
        self._log: list[tuple[float, str, str]] = []

    def arrived(self, token: str, now_s: float) -> int:
        """Counts a request; returns how many of this row came before it."""
        if self.first_s is None:
            self.first_s = now_s
        self.requests += 1
        self.in_flight += 1
        self._peak_in_flight = max(self._peak_in_flight, self.in_flight)
        self._second.add(now_s, 1)
        self._window.add(now_s, 1)
        before = self.tokens[token]
        self.tokens[token] = before + 1
        return before

    def admitted(self, charged_tokens: int, now_s: float) -> None:
        """Counts a request that the limits let through."""
        self._window_admitted.add(now_s, 1)
        self._window_tokens.add(now_s, charged_tokens)

    def decided(self, token: str, answer: str, now_s: float) -> None:
        """Counts how a request is answered: its status, or the fault's name where there is none."""
        self.answers[answer] += 1
        if self._keep_log and self.first_s is not None:
            self._log.append((round(now_s - self.first_s, 6), token, answer))

    def queue_is(self, serving: int, queued: int) -> None:
        """Takes note of the slots in use and of the queue before them."""
        self._peak_serving = max(self._peak_serving, serving)
        self._peak_queued = max(self._peak_queued, queued)

    def used(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> None:
        """Adds the usage that one reply reports."""
        self._usage[0] += input_tokens
        self._usage[1] += output_tokens
        self._usage[2] += cached_tokens

    def report(self) -> dict[str, Any]:
        """All figures, fit for JSON.  `tokens` counts requests by row; `log` is empty unless asked for."""
        return {
            "requests": self.requests,
            "rows": len(self.tokens),
            "answers": dict(self.answers),
            "in_flight": self.in_flight,
            "peak_in_flight": self._peak_in_flight,
            "peak_serving": self._peak_serving,
            "peak_queued": self._peak_queued,
            "peak_per_second": self._second.most,
            "window_s": self._window_s,
            "peak_in_window": self._window.most,
            "peak_admitted_in_window": self._window_admitted.most,
            "peak_tokens_in_window": self._window_tokens.most,
            "connections": self.connections,
            "input_tokens": self._usage[0],
            "output_tokens": self._usage[1],
            "cached_tokens": self._usage[2],
            "tokens": dict(self.tokens),
            "log": list(self._log),
        }
