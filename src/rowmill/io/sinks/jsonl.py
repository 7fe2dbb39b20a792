"""Owns JSON lines, in UTF-8 with nothing escaped that need not be; must not know other formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rowmill.core.rows.chunks import encode_json
from rowmill.core.rows.outputs import Batch
from rowmill.io.sinks.atomic import AtomicFile
from rowmill.io.sinks.settings import SinkSettings

_encode_lines = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode_lines
_ODD = (TypeError, ValueError, RecursionError)


def _record_type(names: Sequence[str]) -> type[msgspec.Struct] | None:
    """A Struct of these columns, made and written in half the time of a dict; None where a name needs escapes."""
    fields = [f"column_{number}" for number in range(len(names))]
    try:
        return msgspec.defstruct("Record", fields, rename=dict(zip(fields, names, strict=True)), gc=False)
    except ValueError:
        return None


class JsonLinesFile:
    """JSON lines that appear whole or not at all, as for the file of failed rows."""

    def __init__(self, path: str) -> None:
        self._file = AtomicFile(path)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes one line a record."""
        try:
            lines = _encode_lines(records)
        except _ODD:
            lines = b"".join(encode_json(record) + b"\n" for record in records)
        self._file.write(lines)

    def append_alike(self, records: Sequence[msgspec.Struct]) -> bool:
        """The same for Structs; False, with nothing written, where one holds what must be made fit for JSON first."""
        try:
            lines = _encode_lines(records)
        except _ODD:
            return False
        self._file.write(lines)
        return True

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
        self._record = _record_type(settings.columns.names)

    def write(self, batch: Batch) -> None:
        """Appends the batch's rows."""
        record = self._record
        if record is not None and batch.is_regular and self._lines.append_alike([record(*row) for row in batch.rows()]):
            return
        self._lines.append(list(batch.records()))

    def commit(self) -> None:
        """Makes the output appear under its name."""
        self._lines.commit()

    def abort(self) -> None:
        """Takes the unfinished output away."""
        self._lines.abort()
