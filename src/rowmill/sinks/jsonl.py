"""Owns JSON lines, in UTF-8 with nothing escaped that need not be; must not know other formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rowmill.chunks import encode_json
from rowmill.outputs import Batch
from rowmill.sinks.atomic import AtomicFile
from rowmill.sinks.settings import SinkSettings

_encode_lines = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode_lines


class JsonLinesFile:
    """JSON lines that appear whole or not at all, as for the file of failed rows."""

    def __init__(self, path: str) -> None:
        self._file = AtomicFile(path)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes one line a record."""
        try:
            lines = _encode_lines(records)
        except (TypeError, ValueError, RecursionError):
            lines = b"".join(encode_json(record) + b"\n" for record in records)
        self._file.write(lines)

    def commit(self) -> None:
        """Makes the file appear under its name."""
        self._file.commit()

    def abort(self) -> None:
        """Takes the unfinished file away."""
        self._file.abort()


class JsonlSink:
    """Output rows as JSON lines; a row has the input keys it came with."""

    def __init__(self, settings: SinkSettings) -> None:
        self._lines = JsonLinesFile(settings.path)

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows."""
        self._lines.append(list(batch.records()))

    def commit(self) -> None:
        """Makes the output appear under its name."""
        self._lines.commit()

    def abort(self) -> None:
        """Takes the unfinished output away."""
        self._lines.abort()
