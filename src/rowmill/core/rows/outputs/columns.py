"""Owns the names and the order of an output's columns; must not know rows or formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from rowmill.errors import OutputError
from rowmill.ports import Chunk
from rowmill.records import Outcome

AnswerKind = Literal["string", "number", "integer", "boolean", "json"]
MetaKind = Literal["string", "number", "integer"]


class AnswerColumn(NamedTuple):
    """One column of the answer; `json` is for what is no single value."""

    name: str
    kind: AnswerKind


# Name in the output (after the prefix), field of Outcome, kind.
_META: Sequence[tuple[str, str, MetaKind]] = (
    ("row", "index", "integer"),
    ("status", "status", "string"),
    ("error", "error", "string"),
    ("endpoint", "endpoint", "string"),
    ("model", "model", "string"),
    ("attempts", "attempts", "integer"),
    ("latency_s", "latency_s", "number"),
    ("input_tokens", "input_tokens", "integer"),
    ("output_tokens", "output_tokens", "integer"),
    ("cost_usd", "cost_usd", "number"),
)
_REASONING: tuple[str, str, MetaKind] = ("reasoning", "reasoning", "string")
_DUPLICATE_OF: tuple[str, str, MetaKind] = ("duplicate_of", "duplicate_of", "integer")
OWN_META = tuple(name for name, _, _ in _META)
OPTIONAL_META = (_REASONING[0], _DUPLICATE_OF[0])


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """The columns of an output: input, answer, then what Rowmill says about the row.

    `set_aside`: columns of the input that are no part of the output (see `earlier`).
    """

    input: tuple[str, ...]
    answer: tuple[AnswerColumn, ...]
    answer_prefix: str = ""
    meta_prefix: str = "_"
    with_reasoning: bool = False
    with_duplicates: bool = False
    set_aside: frozenset[str] = frozenset()

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Final names of the answer's columns."""
        return tuple(self.answer_prefix + column.name for column in self.answer)

    @property
    def meta_names(self) -> tuple[str, ...]:
        """Final names of Rowmill's own columns."""
        return tuple(self.meta_prefix + name for name, _, _ in self._meta)

    @property
    def meta_kinds(self) -> tuple[MetaKind, ...]:
        """Kinds of Rowmill's own columns."""
        return tuple(kind for _, _, kind in self._meta)

    @property
    def names(self) -> tuple[str, ...]:
        """All final names, in order."""
        return self.input + self.answer_names + self.meta_names

    @property
    def _meta(self) -> tuple[tuple[str, str, MetaKind], ...]:
        reasoning = (_REASONING,) if self.with_reasoning else ()
        duplicates = (_DUPLICATE_OF,) if self.with_duplicates else ()
        return (*_META, *reasoning, *duplicates)

    def meta_of(self) -> Callable[[Outcome], tuple[Any, ...]]:
        """A function from an outcome to the values of Rowmill's own columns, in order."""
        return attrgetter(*(field for _, field, _ in self._meta))

    def clashes(self, input_names: Iterable[str] | None = None) -> list[str]:
        """One sentence for every name that would stand twice; `input_names` stand in for `input` where given.

        JSON lines may bring a new key in any row, so ask again for each chunk's columns.
        """
        answer, meta = set(self.answer_names), set(self.meta_names)
        found = []
        for name in dict.fromkeys(self.input if input_names is None else input_names):
            if name in self.set_aside:
                continue
            if name in answer:
                found.append(_clash(name, "the input and the answer both have a column", "--answer-prefix"))
            if name in meta:
                found.append(_clash(name, "the input already has a column", "--meta-prefix"))
        for name in self.answer_names:
            if name in meta:
                found.append(_clash(name, "the answer has a field", "--answer-prefix or --meta-prefix"))
        return found

    def check(self, input_names: Iterable[str] | None = None) -> None:
        """Raises OutputError with every clash of names."""
        if found := self.clashes(input_names):
            raise OutputError(*found)


def input_columns(chunks: Iterable[Chunk]) -> tuple[str, ...]:
    """Names of all columns of these chunks, in order of first appearance."""
    names: dict[str, None] = {}
    for chunk in chunks:
        names.update(dict.fromkeys(chunk.columns))
    return tuple(names)


def _clash(name: str, what: str, option: str) -> str:
    return f"column name clash: {what} {name!r}, which the output needs for its own: rename with {option}"
