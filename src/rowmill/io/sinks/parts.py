"""Owns an output in parts: a folder of files of at most so many rows, whole or absent; must not know formats."""

from __future__ import annotations

from collections.abc import Callable

from rowmill.core.rows.outputs import Batch
from rowmill.io.sinks.atomic import PendingOutput, check_writable, translated
from rowmill.io.sinks.settings import OutputShape
from rowmill.ports import Sink

_FEWEST_DIGITS = 5


class PartsSink:
    """`OUTPUT/part-00000.ENDING` and so on, each written by a sink of its own; an output without rows has one part.

    All parts are made in a folder beside the output, which gets its name at `commit`.
    """

    def __init__(self, path: str, shape: OutputShape, open_part: Callable[[str], Sink]) -> None:
        assert shape.split_rows is not None
        check_writable(path, in_parts=True)
        self._path = path
        self._ending = shape.format
        self._rows_per_part = shape.split_rows
        # Names of one width, so that their order is that of the rows.
        self._digits = max(_FEWEST_DIGITS, len(str(shape.rows // shape.split_rows)))
        self._open_part = open_part
        self._pending = PendingOutput(path)
        self._number = 0
        self._room = shape.split_rows
        with translated(path):
            self._pending.clear()
            self._pending.make_folder()
        self._part = self._opened()

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows, to as many parts as they need."""
        start = 0
        while start < len(batch):
            if not self._room:
                self._part.commit()
                self._number += 1
                self._part = self._opened()
                self._room = self._rows_per_part
            piece = batch.sliced(start, start + self._room)
            self._part.write(piece)
            start += len(piece)
            self._room -= len(piece)

    def commit(self) -> None:
        """Makes the parts appear, all at once."""
        self._part.commit()
        with translated(self._path):
            try:
                self._pending.fill()
            except OSError:
                self._pending.discard()
                raise

    def abort(self) -> None:
        """Takes the unfinished parts away."""
        self._part.abort()
        self._pending.discard()

    def _opened(self) -> Sink:
        name = f"part-{self._number:0{self._digits}d}.{self._ending}"
        try:
            return self._open_part(str(self._pending.unfinished / name))
        except BaseException:
            self._pending.discard()
            raise
