"""The table of failure kinds is whole, says what it always said, and is the only place that lists kinds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rowmill
from rowmill import failure_kinds as kinds
from rowmill.core.pricing.attempt_cost import attempt_cost
from rowmill.core.replies.steps import RowState
from rowmill.engine.circuit_breaker import CircuitBreaker
from rowmill.errors import FailureKind, StopReason
from rowmill.failure_kinds import TABLE, Blame
from rowmill.records import Failure, Row, Status
from rowmill.store.history import TO_READ

SOURCE = Path(rowmill.__file__).parent
OWNERS = {SOURCE / "failure_kinds.py", SOURCE / "errors.py"}
TEXTS = {kind.value for kind in FailureKind}
LITERALS = (ast.Set, ast.Tuple, ast.List, ast.Dict, ast.BoolOp, ast.MatchOr, ast.Match)


def test_every_kind_has_one_row_in_the_order_of_the_kinds() -> None:
    assert [rules.kind for rules in TABLE] == list(FailureKind)


@pytest.mark.parametrize(
    ("derived", "expected"),
    [
        (
            kinds.RETRIED,
            {
                *("server", "exception", "timeout", "unreadable", "reset", "throttled", "unreachable"),
                *("credentials", "forbidden"),
            },
        ),
        (kinds.WAITS_ALONE, {"reset", "forbidden", "server"}),
        (kinds.SERVER_FAULTS, {"server", "timeout", "unreadable"}),
        (kinds.LANE_FAULTS, {"throttled", "reset", "credentials", "forbidden", "unreachable"}),
        (kinds.MAY_BE_ROWS, {"throttled", "reset", "credentials", "forbidden"}),
        (kinds.PAUSES, {"throttled", "credentials", "unreachable"}),
        (kinds.UNCOUNTED, {"throttled", "unreachable"}),
        (kinds.MAYBE_BILLED, {"timeout", "reset", "unreadable"}),
        (kinds.RENEWABLE, {"credentials", "forbidden"}),
        (kinds.READ_AGAIN, {"invalid", "truncated", "refused", "filtered"}),
        (kinds.FAILS_MEASUREMENT, {"server", "timeout", "unreadable", "unreachable", "reset", "forbidden"}),
        (TO_READ, {None, "unread", "invalid", "truncated", "refused", "filtered"}),
    ],
)
def test_each_set_holds_these_kinds(derived: frozenset[str | None], expected: set[str | None]) -> None:
    assert derived == expected


def test_a_kinds_text_from_the_run_file_is_found_in_a_set() -> None:
    assert "timeout" in kinds.MAYBE_BILLED
    assert "throttled" not in kinds.MAYBE_BILLED


def test_rows_end_as_these_statuses() -> None:
    assert {kind: status for kind, status in kinds.ENDS_AS.items() if status is not Status.FAILED} == {
        FailureKind.FILTERED: Status.FILTERED,
        FailureKind.FORBIDDEN: Status.FILTERED,
        FailureKind.REFUSED: Status.REFUSED,
        FailureKind.TRUNCATED: Status.TRUNCATED,
        FailureKind.INVALID: Status.INVALID,
    }
    assert set(kinds.ENDS_AS) == set(FailureKind)


def test_lanes_are_disabled_for_these_reasons() -> None:
    assert kinds.DISABLES_AT_ONCE == {
        FailureKind.QUOTA: StopReason.QUOTA,
        FailureKind.MODEL_MISSING: StopReason.MODEL_MISSING,
        FailureKind.TLS: StopReason.TLS,
    }
    assert kinds.DISABLES_AFTER_TRIES == {
        FailureKind.CREDENTIALS: StopReason.CREDENTIALS,
        FailureKind.FORBIDDEN: StopReason.CREDENTIALS,
    }
    assert set(kinds.DISABLES_AT_ONCE) == {rules.kind for rules in TABLE if rules.blame is Blame.USER}


def test_only_these_kinds_bring_advice() -> None:
    assert {kind: advice for kind, advice in kinds.ADVICE.items() if advice} == {
        FailureKind.QUOTA: "; add credit or raise the limit at the provider",
        FailureKind.CREDENTIALS: "; check the key",
        FailureKind.MODEL_MISSING: "; check the model's name",
        FailureKind.CONTEXT_LENGTH: "; shorten this row's text or lower --max-tokens",
    }
    assert set(kinds.ADVICE) == set(FailureKind)


@pytest.mark.parametrize("rules", TABLE, ids=lambda rules: rules.kind)
def test_each_meaning_is_a_sentence(rules: kinds.KindRules) -> None:
    assert rules.meaning.endswith(".")
    assert ". " not in rules.meaning


@pytest.mark.parametrize("rules", TABLE, ids=lambda rules: rules.kind)
def test_the_parts_do_what_the_table_says(rules: kinds.KindRules) -> None:
    failure = Failure(rules.kind, "x")
    assert (attempt_cost(None, failure, None, failure) is None) == rules.may_be_billed
    breaker = CircuitBreaker(300.0, lambda: 0.0)
    state = RowState(Row(0, {}))
    breaker.sent(state)
    verdict = breaker.failed(state, failure, 0.0, alone=False)
    assert verdict.uses_attempt == (rules.blame in (Blame.ROW, Blame.SERVER))
    assert (verdict.pause_s is not None) == rules.pauses
    assert breaker.disabled == (rules.disables if rules.blame is Blame.USER else None)


def listed(node: ast.AST) -> set[str]:
    """The kinds that a literal names, at any depth below it."""
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "FailureKind"
    }


def spelled(node: ast.AST) -> set[str]:
    """The kinds whose stored texts stand in a literal."""
    return {
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in TEXTS
    }


def lists_of_kinds(path: Path) -> Iterator[str]:
    in_store = SOURCE / "store" in path.parents
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, LITERALS):
            found = listed(node) | (spelled(node) if in_store else set())
            if len(found) > 1:
                yield f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)} lists {', '.join(sorted(found))}"


def test_no_other_module_lists_kinds() -> None:
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if path not in OWNERS]
    assert len(modules) > 100
    assert [found for path in modules for found in lists_of_kinds(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "A = frozenset({FailureKind.RESET, FailureKind.TLS})",
        "if kind in (FailureKind.RESET, FailureKind.TLS): pass",
        "A = {FailureKind.RESET: 1, FailureKind.TLS: 2}",
        "if kind is FailureKind.RESET or kind is FailureKind.TLS: pass",
    ],
)
def test_a_list_of_kinds_is_found(text: str) -> None:
    assert any(len(listed(node)) > 1 for node in ast.walk(ast.parse(text)) if isinstance(node, LITERALS))
