"""Attempts and outcomes -> rows of their tables: secrets taken out, contents packed, endpoints and models as lanes.

Runs in the writer's thread, within a commit.  It must not know when that is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from rowmill.records import Attempt, Outcome
from rowmill.store import meta
from rowmill.store.inserts import Row
from rowmill.store.packing import DICTIONARY_BYTES, SAMPLE_BYTES, Packer, dictionary_of

Redact = Callable[[Sequence[bytes | None]], Sequence[bytes | None]]
Lanes = dict[tuple[str, str, int], int]


class TableRows:
    """Makes rows for one run file.

    `versions` maps an endpoint's name to the version of the job under which it answers, `version` is what rows stand
    under that no endpoint answered.
    """

    def __init__(self, connection: sqlite3.Connection, redact: Redact | None) -> None:
        self._connection = connection
        self._redact: Redact = redact or _as_it_is
        self._packer = Packer(meta.dictionary(connection))
        self._samples: list[bytes] = []
        self._sampled_bytes = 0
        self._lanes: Lanes = {}
        self.versions: Mapping[str, int] = {}
        self.version = 0

    def learned(self) -> tuple[Packer, Lanes]:
        """The dictionary and the lanes so far, to be gone back to where a commit fails."""
        return self._packer, self._lanes.copy()

    def forget(self, learned: tuple[Packer, Lanes]) -> None:
        """Goes back to what was learned before a commit that failed."""
        self._packer, self._lanes = learned

    def _learn_dictionary(self, attempts: Sequence[Attempt], bodies: Sequence[bytes | None]) -> None:
        if self._packer.dictionary is not None:
            return
        for attempt, body in zip(attempts, bodies, strict=True):
            if attempt.kind is not None or not body or len(body) > DICTIONARY_BYTES:
                continue
            self._samples.append(body)
            self._sampled_bytes += len(body)
            if self._sampled_bytes >= SAMPLE_BYTES:
                dictionary = dictionary_of(self._samples)
                meta.put_dictionary(self._connection, dictionary)
                self._packer = Packer(dictionary)
                return

    def of_attempts(self, attempts: Sequence[Attempt]) -> Sequence[Row]:
        """Rows of the table attempts; see `insert_attempts`."""
        bodies = self._redact([attempt.body for attempt in attempts])
        self._learn_dictionary(attempts, bodies)
        lanes = {
            endpoint: self._lane(endpoint, "", self.versions.get(endpoint, self.version))
            for endpoint in {attempt.endpoint for attempt in attempts}
        }
        return [
            (
                attempt.index << 16,
                lanes[attempt.endpoint],
                attempt.sent_at,
                attempt.latency_s,
                attempt.kind,
                attempt.status_code,
                packed,
                body,
                self._clean(attempt.error),
                attempt.request_id,
                attempt.input_tokens,
                attempt.output_tokens,
                attempt.cost_usd,
            )
            for attempt, (packed, body) in zip(attempts, self._packer.pack_bodies(bodies), strict=True)
        ]

    def of_outcomes(self, outcomes: Sequence[Outcome]) -> Sequence[Row]:
        """Rows of the table rows."""
        answers = self._packer.pack_answers(self._redact([outcome.answer for outcome in outcomes]))
        answered_by = [(outcome.endpoint, outcome.model) for outcome in outcomes]
        lanes = {
            (endpoint, model): None if endpoint is None else self._lane(endpoint, model or "", 0)
            for endpoint, model in set(answered_by)
        }
        versions, version = self.versions, self.version
        return [
            (
                outcome.index,
                outcome.status._value_,
                versions.get(by[0] or "", version),
                lanes[by],
                outcome.attempts,
                answer,
                self._clean(outcome.error),
                outcome.latency_s,
                outcome.input_tokens,
                outcome.output_tokens,
                outcome.cost_usd,
                self._clean(outcome.reasoning),
                outcome.duplicate_of,
            )
            for outcome, by, answer in zip(outcomes, answered_by, answers, strict=True)
        ]

    def _clean(self, text: str | None) -> str | None:
        if text is None:
            return None
        (cleaned,) = self._redact([text.encode("utf-8", "replace")])
        return None if cleaned is None else cleaned.decode("utf-8", "replace")

    def _lane(self, endpoint: str, model: str, version: int) -> int:
        """The id of an endpoint, the model that answered and the version that was asked under."""
        lane = endpoint, model, version
        known = self._lanes.get(lane)
        if known is None:
            self._connection.execute("INSERT OR IGNORE INTO lanes (endpoint, model, version) VALUES (?, ?, ?)", lane)
            (known,) = self._connection.execute(
                "SELECT id FROM lanes WHERE endpoint = ? AND model = ? AND version = ?", lane
            ).fetchone()
            self._lanes[lane] = known
        return int(known)


def _as_it_is(contents: Sequence[bytes | None]) -> Sequence[bytes | None]:
    return contents
