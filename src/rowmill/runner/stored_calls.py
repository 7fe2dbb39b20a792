"""Calls a function over rows with a run file: a run like any other, whose items and values the codec stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rowmill import codec
from rowmill.chunks import ObjectChunk
from rowmill.codec import CodecError
from rowmill.errors import SourceError
from rowmill.job import EndpointSpec
from rowmill.ports import Chunk
from rowmill.providers.callable import AsItIs, Outlet, Passing
from rowmill.providers.credentials import Credentials
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import Outcome
from rowmill.runner.calling import ITEM, Target
from rowmill.runner.lanes import Endpoint
from rowmill.runner.mapping import Prepared
from rowmill.runner.plan import Plan, open_input
from rowmill.store.reader import RunFileReader

ROWS_PER_CHUNK = 1000


def body_of(index: int, value: Any) -> bytes:
    """A value as the body that is stored; see `Outlet`.  Raises CodecError before more is paid for."""
    try:
        return codec.encode_proven(value)
    except CodecError as error:
        raise CodecError(f"what the call returned for row {index} cannot be stored: {error}") from None


class ItemSource:
    """Any items as rows of one column, stored by the codec; implements `ports.Source`.  Can be read once."""

    name = "<items>"
    rereadable = False

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (ITEM,)

    def size_hint(self) -> int | None:
        """Not known."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """All items, 1,000 at a time.  Raises SourceError for one that cannot be stored."""
        items = iter(self._items)
        first = 0
        while piece := list(islice(items, ROWS_PER_CHUNK)):
            rows = [{ITEM: _tree(item, index)} for index, item in enumerate(piece, first)]
            yield ObjectChunk(range(first, first + len(rows)), rows)
            first += len(rows)


def _tree(item: Any, index: int) -> Any:
    try:
        return codec.to_tree(item)
    except CodecError as error:
        raise SourceError(f"row {index}: {error}") from None


def prepared_calls(target: Target, source: ItemSource, outlet: Outlet) -> Prepared:
    """A run of calls, whose prompt passes the items on and whose answers are the values."""
    job = target.job
    resolved = ResolvedEndpoint(target.name, "", provider="callable")
    endpoint = Endpoint(_pinned(job.endpoints[0]), resolved, Credentials(resolved), given=target.provider(outlet))
    plan = Plan(job, Passing(_item_of), AsItIs(), None, Path(job.output), Path(job.run_file_path), "jsonl")
    return plan, [endpoint], open_input(plan, source)


def _pinned(spec: EndpointSpec) -> EndpointSpec:
    from rowmill.runner.calling import IN_FLIGHT

    return spec if spec.pinned else spec.model_copy(update={"in_flight": IN_FLIGHT})


def _item_of(values: Mapping[str, Any]) -> Any:
    return codec.from_tree(values[ITEM])


def stored_values(run_file: Path) -> Iterator[tuple[Any, Outcome]]:
    """Each row's value (None where it ended badly) and outcome, in order.  Raises CodecError, RunFileError."""
    reader = RunFileReader(run_file, checked=False)
    try:
        for _, outcomes in reader.outcomes():
            for outcome in outcomes:
                if outcome is not None:
                    yield _value(outcome), outcome
    finally:
        reader.close()


def _value(outcome: Outcome) -> Any:
    return None if outcome.answer is None else codec.decode_readable(json.loads(outcome.answer))
