"""Owns how an earlier output of Rowmill is known as an input, and which of its rows are no good to go on with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rowmill.core.rows.outputs.columns import OPTIONAL_META, OWN_META
from rowmill.records import Row, Status

GOOD_TO_GO_ON = frozenset({Status.OK.value, Status.FALLBACK.value})


def columns_set_aside(names: Collection[str], meta_prefix: str) -> frozenset[str]:
    """Columns in which an earlier run speaks of its rows, where all are there; the new run needs their names."""
    own = {meta_prefix + name for name in OWN_META}
    if not own.issubset(names):
        return frozenset()
    return frozenset(own | {meta_prefix + name for name in OPTIONAL_META if meta_prefix + name in names})


def why_skipped(meta_prefix: str, used: Sequence[str] | None) -> Callable[[Row], str | None]:
    """For rows of an earlier output: why one is not sent, None where it is.

    A column that the request uses (None: any) is empty because the row ended badly there.
    """
    status_name, row_name = f"{meta_prefix}status", f"{meta_prefix}row"

    def why(row: Row) -> str | None:
        values = row.values
        status = values.get(status_name)
        if not isinstance(status, str) or status in GOOD_TO_GO_ON:
            return None
        names = _input_names(values, meta_prefix) if used is None else used
        empty = next((name for name in names if values.get(name) in (None, "")), None)
        if empty is None:
            return None
        return f"the column {empty} is empty: row {values.get(row_name)} was {status} in the earlier run"

    return why


def _input_names(values: Mapping[str, object], meta_prefix: str) -> Sequence[str]:
    own = {meta_prefix + name for name in (*OWN_META, *OPTIONAL_META)}
    return [name for name in values if name not in own]
