"""Pairs of a job and the same job changed, against a small model of what must be sent again.

The model knows requests, not versions: a finished row stays where the job still asks its endpoint's model for the same,
or where that endpoint was taken away and another one of that time is still there; else the user decides.
"""

from __future__ import annotations

import contextlib
import copy
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rowmill.core.rows.chunks import ObjectChunk
from rowmill.failure_kinds import UNREAD
from rowmill.job import Job
from rowmill.records import Attempt, Outcome, Status
from rowmill.runner.session.job_versions import settle_versions
from rowmill.runner.setup.endpoints import resolve_endpoints
from rowmill.runner.setup.plan import Plan, make_plan
from rowmill.store import connection as connections
from rowmill.store.pending_rows import PendingRows, PendingRules
from rowmill.store.reader import RunFileReader
from rowmill.store.spool import Spool, SpoolRules
from rowmill.store.writer import Writer

PAIRS = 250
ROWS = [{"lang": lang, "text": f"text {at}"} for at, lang in enumerate(["en", "de", "en", "de", "en"])]
ROWS.append({"lang": "de", "text": " "})
BLANK = 5

Keys = dict[str, Any]


class Kept(NamedTuple):
    """What a session left of one row: `state` is ok, invalid, failed, skipped, unread or none; `by` is an endpoint."""

    state: str
    by: int


class Expected(NamedTuple):
    """`sent`: rows without an answer to read; `read`: rows whose stored reply is read; `stay`: finished ones."""

    sent: set[int]
    read: set[int]
    stay: set[int]


# --- jobs --------------------------------------------------------------------------------------------------


def a_job(chance: random.Random) -> Keys:
    models = chance.sample(["m1", "m2", "http/m3"], chance.choice([1, 2, 2]))
    endpoints = [an_endpoint(chance, model) for model in models]
    if len(endpoints) == 2 and chance.random() < 0.5:
        endpoints[0]["when"] = "lang == 'en'"
    keys: Keys = {"prompt": chance.choice(["P {{ text }}", "Q {{ text }}"]), "endpoints": endpoints}
    for name, values in OPTIONAL.items():
        value = chance.choice(values)
        if value is not None:
            keys[name] = value
    return keys


OPTIONAL: Mapping[str, Sequence[Any]] = {
    "system": [None, None, "Be brief."],
    "answer": [None, {"schema": {"label": "a|b"}}, {"schema": {"label": "a|b|c"}}],
    "params": [None, {"temperature": 0}, {"temperature": 1}],
    "empty": [None, "skip"],
    "retry": [None, {"attempts": 7}],
    "budget_usd": [None, None, 5.0],
    "dedupe": [None, None, True],
}


def an_endpoint(chance: random.Random, model: str) -> Keys:
    endpoint: Keys = {"model": model, "url": f"http://127.0.0.1:{chance.choice([1, 2])}/v1"}
    if model.startswith("http/"):
        endpoint["http"] = {"answer": chance.choice(["a", "b"]), "body": {"q": "{{ prompt }}"}}
    if chance.random() < 0.3:
        endpoint["params"] = {"top_k": chance.choice([1, 2])}
    if chance.random() < 0.2:
        endpoint["prompt"] = chance.choice(["Own {{ text }}", "My {{ text }}"])
    if chance.random() < 0.2:
        endpoint["parse"] = chance.choice(["json:loads", "json:dumps"])
    if chance.random() < 0.3:
        endpoint["in_flight"] = chance.choice([1, 5])
    return endpoint


def changed(chance: random.Random, job: Keys) -> Keys:
    """The job with up to three changes."""
    now = copy.deepcopy(job)
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        other = a_job(chance)
        kind = chance.randrange(6)
        if kind == 0:
            now["prompt"] = other["prompt"]
        elif kind == 1:
            name = chance.choice(list(OPTIONAL))
            now.pop(name, None)
            now.update({name: other[name]} if name in other else {})
        elif kind == 2:
            now["endpoints"] = other["endpoints"]
        elif kind == 3 and len(now["endpoints"]) == 2:
            del now["endpoints"][chance.randrange(2)]
        elif kind == 4:
            at = chance.randrange(len(now["endpoints"]))
            now["endpoints"][at] = an_endpoint(chance, now["endpoints"][at]["model"])
        else:
            now["endpoints"].reverse()
    now["endpoints"][-1].pop("when", None)
    return now


def plan_of(keys: Keys, folder: Path) -> Plan:
    job = Job.model_validate({"source": "in.jsonl", "output": str(folder / "out.jsonl"), **keys})
    return make_plan(job)


# --- the model ---------------------------------------------------------------------------------------------


def asked(job: Keys, endpoint: Keys) -> Any:
    """All that makes a request of a row and an answer of its reply."""
    return (
        endpoint.get("prompt", job["prompt"]),
        job.get("system"),
        job.get("answer", {}).get("schema"),
        {**job.get("params", {}), **endpoint.get("params", {})},
        endpoint.get("http"),
        endpoint.get("parse"),
    )


def stays(before: Keys, now: Keys, endpoint: Keys) -> bool:
    """Whether what an endpoint has answered needs no word of the user."""
    same = [one for one in now["endpoints"] if one["model"] == endpoint["model"]]
    if same:
        return bool(asked(now, same[0]) == asked(before, endpoint))
    others = [
        one
        for one in before["endpoints"]
        for other in now["endpoints"]
        if one["model"] == other["model"] and asked(before, one) == asked(now, other)
    ]
    is_alike = before.get("prompt") == now.get("prompt") and before.get("system") == now.get("system")
    return bool(others) and is_alike and bool(schema_of(before) == schema_of(now))


def schema_of(job: Keys) -> Any:
    return job.get("answer", {}).get("schema")


def model_of(before: Keys, now: Keys, kept: Sequence[Kept], on_change: str) -> Expected:
    expected = Expected(set(), set(), set())
    strange = {
        row.by
        for row in kept
        if row.state in ("ok", "invalid", "failed") and not stays(before, now, before["endpoints"][row.by])
    }
    rereads = on_change == "keep" and bool(strange) and schema_of(before) != schema_of(now)
    names_now = {endpoint["model"] for endpoint in now["endpoints"]}
    for index, row in enumerate(kept):
        endpoint = before["endpoints"][row.by]
        is_there = endpoint["model"] in names_now
        is_same = is_there and stays(before, now, endpoint)
        agreed = on_change == "keep" and row.by in strange
        if row.state == "none":
            expected.sent.add(index)
        elif row.state == "unread":
            (expected.read if is_there and (is_same or agreed) else expected.sent).add(index)
        elif row.state == "skipped":
            # What was not sent is free: it is decided again under another prompt, and where `empty` is another.
            first = before["endpoints"][0]
            is_decided = first["model"] in names_now and stays(before, now, first)
            (expected.stay if is_decided and before.get("empty") == now.get("empty") else expected.sent).add(index)
        elif row.by not in strange:
            expected.stay.add(index)
        elif on_change == "rerun":
            expected.sent.add(index)
        elif rereads and is_there and row.state in ("ok", "invalid"):
            expected.read.add(index)
        else:
            expected.stay.add(index)
    return expected


# --- the run file ------------------------------------------------------------------------------------------


def what_is_left(chance: random.Random, job: Keys) -> list[Kept]:
    """What a first session could have left of each row."""
    routed = "when" in job["endpoints"][0]
    kept = []
    for index, row in enumerate(ROWS):
        free = [at for at in range(len(job["endpoints"])) if not (routed and at == 0)]
        by = 0 if routed and row["lang"] == "en" else chance.choice(free)
        states = ["ok", "ok", "failed", "unread", "none"] + (["invalid"] if "answer" in job else [])
        state = chance.choice(states)
        if index == BLANK and job.get("empty") == "skip":
            state = chance.choice(["skipped", "none"])
        kept.append(Kept(state, by))
    return kept


def leave(plan: Plan, kept: Sequence[Kept]) -> None:
    """A first session that left this."""
    with opened(plan, "keep") as (writer, _):
        for index, (state, by) in enumerate(kept):
            model = plan.job.endpoints[by].model
            if state in ("ok", "invalid", "unread"):
                kind = {"ok": None, "invalid": "invalid", "unread": UNREAD}[state]
                writer.save_attempt(Attempt(index, model, 1.0, 0.1, kind, 200, b"reply", None, None, 1, 1))
            elif state == "failed":
                writer.save_attempt(Attempt(index, model, 1.0, 0.1, "bad_request", 400, b"no", "no", None, None, None))
            if state in ("ok", "invalid", "failed"):
                answer = b'{"label":"a"}' if state == "ok" else None
                writer.save_outcome(Outcome(index, Status(state), answer, None, model, model, 1, 0.1, 1, 1, None, None))
            elif state == "skipped":
                writer.save_outcome(Outcome(index, Status.SKIPPED, None, None, None, None, 0, None, 0, 0, 0.0, None))


@contextlib.contextmanager
def opened(plan: Plan, on_change: str) -> Iterator[tuple[Writer, Spool]]:
    """The run file as a start leaves it before the first row is handed out."""
    if not plan.run_file.exists():
        connections.create(plan.run_file)
    writer = Writer(plan.run_file)
    try:
        versions = settle_versions(plan, resolve_endpoints(plan.job), writer, on_change, None)
        writer.use_versions(versions)
        chunk = ObjectChunk(range(len(ROWS)), ROWS, {})
        spool = Spool(writer, SpoolRules(plan.key_names, lambda columns: None), iter([chunk]))
        spool.read_all()
        yield writer, spool
    finally:
        writer.close("finished")


def found(plan: Plan, on_change: str) -> Expected:
    """What the next start hands out, and what it leaves."""
    rows = []
    with opened(plan, on_change) as (writer, spool):
        pending = PendingRows(writer, spool.progress, PendingRules(plan.value_names))
        for partition in plan.router.partitions().values():
            rows += [row for part in pending.walk(partition) for row in part]
    with RunFileReader(plan.run_file) as reader:
        stay = {
            outcome.index for _, outcomes in reader.outcomes() for outcome in outcomes if outcome is not None
        }  # fmt: skip
    indices = [row.index for row in rows]
    assert len(indices) == len(set(indices)), "a row is handed out twice"
    return Expected(
        {row.index for row in rows if row.unread is None},
        {row.index for row in rows if row.unread is not None},
        stay,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(40))
def test_what_is_sent_again_after_a_change_is_what_the_model_says(part: int) -> None:
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
        for number in range(PAIRS):
            chance = random.Random(part * PAIRS + number)
            place = Path(folder) / str(number)
            place.mkdir()
            before = a_job(chance)
            now, on_change = changed(chance, before), chance.choice(["keep", "rerun"])
            kept = what_is_left(chance, before)
            leave(plan_of(before, place), kept)
            seen, expected = found(plan_of(now, place), on_change), model_of(before, now, kept, on_change)
            assert seen == expected, (part * PAIRS + number, before, now, on_change, kept)
            for file in place.iterdir():
                file.unlink()


def test_the_model_of_a_changed_prompt() -> None:
    before = {"prompt": "P", "endpoints": [{"model": "m1"}]}
    now = {"prompt": "Q", "endpoints": [{"model": "m1"}]}
    kept = [Kept("ok", 0), Kept("unread", 0), Kept("none", 0)]
    assert model_of(before, before, kept, "rerun") == Expected({2}, {1}, {0})
    assert model_of(before, now, kept, "rerun") == Expected({0, 1, 2}, set(), set())
    assert model_of(before, now, kept, "keep") == Expected({2}, {1}, {0})
