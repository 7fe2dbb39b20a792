"""Whether finished rows were answered under the job as it is now, and what to do where they were not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowmill.errors import ChangedError
from rowmill.job import difference, fingerprint
from rowmill.job.version import changed_lines
from rowmill.store.reader import Version


@dataclass(frozen=True, slots=True)
class Change:
    """Finished rows that stand under other versions of the job."""

    versions: Sequence[Version]
    differences: Sequence[str]
    schema_changed: bool
    lines: Sequence[str] = ()

    @property
    def rows(self) -> int:
        return sum(version.rows for version in self.versions)

    def words(self) -> str:
        """What the user is told."""
        plural = "row was" if self.rows == 1 else "rows were"
        return f"{'; '.join(self.differences)}; {self.rows:,} finished {plural} answered under the old one"

    def shown(self) -> str:
        """The lines that differ, each on a line of its own."""
        return "".join(f"\n  {line}" for line in self.lines)


def find_change(stored: Sequence[Version], now: Mapping[str, Any]) -> Change | None:
    """Compares the versions of finished rows with the job's definition; None where nothing has changed.

    An endpoint that was taken away is no change as long as another one of that time is still there.
    """
    current = {(fingerprint(now, model), model) for model in now["models"]}
    # Not by the fingerprint that is stored: an older Rowmill may have made it in another way.
    asked = [(fingerprint(version.definition, version.model), version.model) for version in stored]
    strange = []
    for version, its in zip(stored, asked, strict=True):
        if not version.rows or version.accepted or its in current:
            continue
        was_taken_away = version.model not in now["models"] and not current.isdisjoint(asked)
        if was_taken_away and _asks_the_same(version.definition, now):
            continue
        strange.append(version)
    if not strange:
        return None
    words: dict[str, None] = {}
    for version in strange:
        shown = version.model if version.model in now["models"] else next(iter(now["models"]))
        words.update(dict.fromkeys(difference(version.definition, {**now, "models": {shown: now["models"][shown]}})))
    schema = any(version.definition["schema"] != now["schema"] for version in strange)
    return Change(strange, list(words) or ["the job changed"], schema, changed_lines(strange[0].definition, now))


def has_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether rows that were answered under the job before would have to be asked about now."""
    versions = [
        Version(-1, "", model, {**before, "models": {model: sent}}, accepted=False, rows=1)
        for model, sent in before["models"].items()
    ]
    return find_change(versions, now) is not None


def decide(change: Change, on_change: str | None, confirm: Callable[[str], bool] | None) -> str:
    """`keep` or `rerun`; raises ChangedError where nobody has said and nobody can be asked."""
    if on_change is not None:
        return on_change
    if confirm is not None:
        if confirm(f"{change.words()}.{change.shown()}\nSend those rows again (and pay for them)?"):
            return "rerun"
        if confirm("Keep them as they are and go on with the rest?"):
            return "keep"
    raise ChangedError(
        f"{change.words()}; say --on-change keep to accept them, --on-change rerun to send them again, "
        f"or --fresh to begin anew{change.shown()}"
    )


def _asks_the_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return [list(m) for m in old["messages"]] == [list(m) for m in new["messages"]] and old["schema"] == new["schema"]
