"""Settles, before a session, what finished rows are worth under the job as it is now.

Each function changes the run file and returns the version under which each endpoint answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowmill.errors import ChangedError
from rowmill.job import AnswerSpec
from rowmill.job.version import fingerprint, version_keys
from rowmill.runner.setup.endpoints import Endpoint
from rowmill.runner.setup.plan import Plan
from rowmill.runner.setup.versions import decide, find_change, has_changed
from rowmill.store import changes
from rowmill.store.reader import RunFileReader
from rowmill.store.writer import Writer

Versions = Mapping[str, int]


def settle_versions(
    plan: Plan,
    endpoints: Sequence[Endpoint],
    writer: Writer,
    on_change: str | None,
    confirm: Callable[[str], bool] | None,
) -> Versions:
    """Compares the job with the one that finished rows were answered under; then makes it the file's job."""
    definition = plan.definition()
    with RunFileReader(plan.run_file, checked=False) as reader:
        stored, before = reader.versions(), reader.metadata("definition")
    is_other_job = before is not None and has_changed(json.loads(before), definition)
    if is_other_job:  # what was accepted was accepted for the job as it was
        stored = [version._replace(accepted=False) for version in stored]
    change = find_change(stored, definition)
    choice = None if change is None else decide(change, on_change, confirm)
    if is_other_job:
        writer.do(changes.forget_acceptance)
    if change is not None:
        ids = [version.id for version in change.versions]
        if choice == "rerun":
            writer.do(lambda c: changes.send_again_by_version(c, ids))
        elif choice == "keep":
            writer.do(lambda c: changes.accept_versions(c, ids))
            if change.schema_changed:
                writer.do(lambda c: changes.read_again_by_version(c, ids))
        else:
            raise ChangedError(f"--on-change must be keep or rerun, not {choice}")
    versions = stored_versions(plan, endpoints, writer, accepted=False)
    current = list(versions.values())
    writer.do(lambda c: changes.try_unsent_again(c, current))
    fallback = _fallback_words(plan.job.answer)
    writer.do(lambda c: changes.apply_fallback(c, fallback))
    writer.do(lambda c: changes.apply_empty(c, plan.job.empty))
    writer.do(lambda c: changes.keep_unreadable(c, versions))
    writer.do(lambda c: changes.remember_job(c, plan.job.to_json().decode(), definition))
    files = json.dumps([(what, os.path.abspath(path)) for what, path in plan.job.files])
    writer.do(lambda c: changes.remember_files(c, files))
    return versions


def stored_versions(plan: Plan, endpoints: Sequence[Endpoint], writer: Writer, *, accepted: bool) -> Versions:
    """The job's versions, stored where they are new; `accepted` is for those."""
    definition, keys = plan.definition(), version_keys(plan.job)

    def task(connection: Any) -> dict[str, int]:
        return {
            endpoint.name: changes.version_id(
                connection,
                fingerprint(definition, key),
                key,
                {**definition, "models": {key: definition["models"][key]}},
                accepted=accepted,
            )
            for endpoint, key in zip(endpoints, keys, strict=True)
        }

    versions: Versions = writer.do(task)
    return versions


def _fallback_words(answer: AnswerSpec | None) -> str:
    """The fallback as the run file keeps it, empty where there is none."""
    if answer is None or answer.compiled_fallback is None:
        return ""
    return json.dumps([answer.fallback, sorted(answer.fallback_for)], sort_keys=True, ensure_ascii=False)
