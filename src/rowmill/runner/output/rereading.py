"""Reads the replies that a run file holds under another schema; sends nothing and needs no key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from rowmill.core.replies.answers import read_answer
from rowmill.core.replies.reading import read_reply
from rowmill.failure_kinds import ENDS_AS
from rowmill.job import Job
from rowmill.job.model import endpoint_names
from rowmill.job.python_model import python_function
from rowmill.ports import Provider
from rowmill.providers.credentials import Credentials
from rowmill.providers.presets import resolve
from rowmill.records import Answer, Outcome, RawReply, Reply, Status
from rowmill.runner.setup.endpoints import Endpoint, NoTransport, make_provider
from rowmill.store.reader import RunFileReader

LEADERS_KEPT = 1000

_encode = msgspec.json.Encoder(decimal_format="number").encode


class Reread:
    """The replies of one run under the schema of `job`."""

    def __init__(self, job: Job) -> None:
        self._schema = job.answer.compiled if job.answer else None
        self._providers: dict[str, Provider] = {}
        self._parsers: dict[str, Callable[[str], object]] = {}
        for spec, name in zip(job.endpoints, endpoint_names(job.endpoints), strict=True):
            resolved = replace(resolve(spec.model, spec.url), key_env=None, key_required=False)
            endpoint = Endpoint(spec, resolved, Credentials(resolved, environment={}), batch=job.is_batch)
            self._providers[name] = make_provider(NoTransport(), endpoint, self._schema)
            if spec.parse is not None:
                self._parsers[name] = python_function(spec.parse)
        self._default = next(iter(self._providers.values()))
        self._leaders: OrderedDict[int, tuple[str, RawReply] | None] = OrderedDict()

    def outcomes(self, reader: RunFileReader, outcomes: Sequence[Outcome | None]) -> list[Outcome | None]:
        """One chunk's outcomes read anew; a row without a reply stays as it is."""
        known = [outcome.index for outcome in outcomes if outcome is not None]
        replies = reader.replies(known[0], known[-1]) if known else {}
        return [None if outcome is None else self._again(reader, outcome, replies) for outcome in outcomes]

    def _again(self, reader: RunFileReader, outcome: Outcome, replies: dict[int, tuple[str, RawReply]]) -> Outcome:
        leader = outcome.duplicate_of
        found = replies.get(outcome.index) if leader is None else self._of_leader(reader, leader)
        if found is None:
            return outcome.replaced(answer=None)
        endpoint, raw = found
        read = read_reply(self._providers.get(endpoint, self._default), raw)
        seen = read_answer(read, self._schema, self._parsers.get(endpoint)) if isinstance(read, Reply) else read
        if isinstance(seen, Answer):
            return outcome.replaced(status=Status.OK, answer=_encode(seen.values), error=None, reasoning=seen.reasoning)
        return outcome.replaced(
            status=ENDS_AS[seen.kind],
            answer=None if seen.values is None else _encode(seen.values),
            error=seen.message,
            reasoning=seen.reasoning,
        )

    def _of_leader(self, reader: RunFileReader, index: int) -> tuple[str, RawReply] | None:
        """The reply of the row that a duplicate follows; the latest asked for are kept."""
        if index not in self._leaders:
            self._leaders[index] = reader.replies(index, index).get(index)
            if len(self._leaders) > LEADERS_KEPT:
                self._leaders.popitem(last=False)
        return self._leaders[index]
