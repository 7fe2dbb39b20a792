"""Rows of a source that may keep its reader waiting: taken in a thread of their own, told as they have come.

It must not know what the items are.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 0.2  # so long an item may lie before it is told to have come
MOST_AHEAD = 256


class _Hand:
    """What the taking thread hands over.  Appending needs no lock, so that a fast source is not slowed down."""

    def __init__(self, items: Iterable[object]) -> None:
        self.items: deque[object] = deque()
        self.ended = False
        self.error: BaseException | None = None
        self.is_over = False
        self._came, self._room = threading.Event(), threading.Event()
        self._is_waited_for = False
        threading.Thread(target=self._take, args=(items,), name="rowmill-arriving", daemon=True).start()

    def _take(self, items: Iterable[object]) -> None:
        try:
            for item in items:
                self.items.append(item)
                if self._is_waited_for:
                    self._came.set()
                while len(self.items) >= MOST_AHEAD and not self.is_over:
                    self._room.clear()
                    if len(self.items) >= MOST_AHEAD and not self.is_over:
                        self._room.wait(PATIENCE_S)
                if self.is_over:
                    return
        except BaseException as error:  # raised again where the items are taken out
            self.error = error
        finally:
            self.ended = True
            self._came.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether something has come, or the end."""
        self._room.set()
        self._came.clear()
        self._is_waited_for = True
        if not self.items and not self.ended:
            self._came.wait(timeout_s)
        self._is_waited_for = False
        return bool(self.items) or self.ended

    def close(self) -> None:
        self.is_over = True
        self._room.set()


def arriving(items: Iterable[T], clock: Callable[[], float] = time.monotonic) -> Iterator[T | None]:
    """The items, and None wherever the next one is not there and one has lain for `PATIENCE_S` since the last None."""
    hand = _Hand(items)
    oldest_s: float | None = None
    try:
        while True:
            while hand.items:
                item: T = hand.items.popleft()  # type: ignore[assignment]
                if oldest_s is None:
                    oldest_s = clock()
                yield item
            if hand.ended and not hand.items:
                if hand.error is not None:
                    raise hand.error
                return
            left_s = None if oldest_s is None else max(0.0, oldest_s + PATIENCE_S - clock())
            if not hand.wait(left_s):
                oldest_s = None
                yield None
    finally:
        hand.close()


def as_they_come(items: Iterable[T], most: int) -> Iterator[tuple[list[T], bool]]:
    """The items in lists of at most `most`, each with whether it is a whole piece; fewer where they come slowly.

    What is there already is cut without a thread.
    """
    if isinstance(items, Sized):
        rest = iter(items)
        while piece := list(islice(rest, most)):
            yield piece, True
        return
    piece, taken = [], 0
    for item in arriving(map(_boxed, items)):
        if item is None:
            if piece:
                yield piece, False
            piece = []
            continue
        piece.append(item[0])
        taken += 1
        if taken == most:
            yield piece, True
            piece, taken = [], 0
    if piece:
        yield piece, True


def _boxed(item: T) -> tuple[T]:
    return (item,)  # None may be an item itself
