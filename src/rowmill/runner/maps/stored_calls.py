"""Calls a function over rows with a run file: a run like any other, whose items and values the codec stores."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rowmill.core.requests.routing import GivenLanes
from rowmill.core.rows import codec
from rowmill.core.rows.chunks import ObjectChunk
from rowmill.core.rows.codec import CodecError
from rowmill.errors import SourceError, StopReason
from rowmill.io.sources.arriving import as_they_come
from rowmill.job import EndpointSpec
from rowmill.job.model import effective_params
from rowmill.ports import Chunk, Observer
from rowmill.providers.callable import AsItIs, Outlet, Passing
from rowmill.providers.credentials import Credentials
from rowmill.providers.presets import ResolvedEndpoint
from rowmill.records import GOOD, Outcome, Result
from rowmill.runner.maps.calls import IN_FLIGHT, ITEM, MISSING, Called, Target, error_of
from rowmill.runner.maps.prompt_map import MapRules, MapRun, Prepared
from rowmill.runner.session.loop import in_thread
from rowmill.runner.setup.endpoint_prompts import EndpointPrompt, EndpointPrompts
from rowmill.runner.setup.endpoints import Endpoint
from rowmill.runner.setup.plan import Plan, open_input
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
        """All items, 1,000 at a time or as they come.  Raises SourceError for one that cannot be stored."""
        first = 0
        for piece, is_whole in as_they_come(self._items, ROWS_PER_CHUNK):
            rows = [{ITEM: _tree(item, index)} for index, item in enumerate(piece, first)]
            yield ObjectChunk(range(first, first + len(rows)), rows, is_open=not is_whole)
            first += len(rows)


def _tree(item: Any, index: int) -> Any:
    try:
        return codec.to_tree(item)
    except CodecError as error:
        raise SourceError(f"row {index}: {error}") from None


class StoredCalls:
    """Calls over rows whose values a run file keeps: those that it has are not called for again.

    As `Calls` otherwise; `ended` hears of rows that have ended well before as well, before anything is called.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        items: Iterable[Any],
        rules: MapRules,
        *,
        route: Callable[[int], int] | None = None,
        ended: Callable[[Outcome], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._targets = targets
        self._items = items
        self._route = route
        self._outlet = Outlet(body_of, {})
        self._run_file = Path(targets[0].job.run_file_path)
        self._map = MapRun(self._prepared, rules, observers, ended)

    def value(self, outcome: Outcome) -> Any:
        """What the call of a row that has ended well returned, as a resumed call would have it."""
        return value_of(outcome)

    def error(self, outcome: Outcome) -> Exception:
        """What a row that has ended badly raised; of an earlier session only its words are left."""
        return error_of(outcome, self._outlet.errors)

    def stop(self, reason: StopReason) -> None:
        """See `Calls`."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._map.stop(reason)

    def run(self) -> Called:
        """See `Calls`."""
        return self._called(self._map.run())

    async def execute(self) -> Called:
        """See `Calls`."""
        return await in_thread(self._called, await self._map.arun())

    def _prepared(self) -> Prepared:
        """A run of calls, whose prompt passes the items on and whose answers are the values."""
        specs = [self._spec(target) for target in self._targets]
        job = self._targets[0].job.model_copy(update={"endpoints": tuple(specs)})
        endpoints = []
        for target, spec in zip(self._targets, specs, strict=True):
            resolved = ResolvedEndpoint(target.name, "", provider="callable")
            given, quota = target.provider(self._outlet), target.name
            endpoints.append(Endpoint(spec, resolved, Credentials(resolved), given=given, quota=quota))
        prompt = Passing(_item_of)
        endpoint_prompts = None
        if self._route is not None:
            each = [EndpointPrompt(prompt, effective_params(job, spec)) for spec in specs]
            endpoint_prompts = EndpointPrompts(each, GivenLanes(self._route, len(specs)), {})
        plan = Plan(
            job=job,
            prompt=prompt,
            schema=AsItIs(),
            names=None,
            output=job.output,
            run_file=self._run_file,
            format="jsonl",
            endpoint_prompts=endpoint_prompts,
        )
        return plan, endpoints, open_input(plan, ItemSource(self._items))

    def _spec(self, target: Target) -> EndpointSpec:
        """Invariant: rows that are routed are for their own target alone, also when it is in trouble."""
        spec = target.job.endpoints[0]
        return spec.model_copy(update={"in_flight": spec.fixed_in_flight or IN_FLIGHT, "pin": self._route is not None})

    def _called(self, ended: Result) -> Called:
        if self._outlet.fatal is not None:
            raise self._outlet.fatal
        values: list[Any] = []
        bad: dict[int, Outcome] = {}
        for outcomes in _outcomes(self._run_file):
            for outcome in outcomes:
                if outcome is not None and outcome.status not in GOOD:
                    bad[outcome.index] = outcome
                    outcome = None
                values.append(MISSING if outcome is None else value_of(outcome))
        return Called(
            reason=ended.reason,
            message=ended.message,
            values=values,
            bad=bad,
            errors=self._outlet.errors,
            kept=self._run_file,
        )


def _item_of(values: Mapping[str, Any]) -> Any:
    return codec.from_tree(values[ITEM])


def _outcomes(run_file: Path) -> Iterator[Sequence[Outcome | None]]:
    """How the rows ended, in order, None for those that have not.  Raises RunFileError."""
    with RunFileReader(run_file, checked=False) as reader:
        for _, outcomes in reader.outcomes():
            yield outcomes


def value_of(outcome: Outcome) -> Any:
    """What a row's call returned, None where it ended badly.  Raises CodecError."""
    return None if outcome.answer is None else codec.decode_readable(json.loads(outcome.answer))
