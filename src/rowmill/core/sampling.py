"""A uniform sample of what is seen only once (Vitter's algorithm R); randomness is passed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Up to `size` of the items added, each set of them equally likely.  Holds no more than those.

    `below(n)` gives a whole number from 0 to n - 1, each equally likely.
    """

    def __init__(self, size: int, below: Callable[[int], int]) -> None:
        self._size = size
        self._below = below
        self._seen = 0
        self.items: list[T] = []

    def add(self, item: T) -> None:
        self._seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
            return
        slot = self._below(self._seen)
        if slot < self._size:
            self.items[slot] = item
