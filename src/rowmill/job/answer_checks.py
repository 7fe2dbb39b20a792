"""What an answer's schema, fallback and expectations may be, as `checks` says it of a job's other values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rowmill.core.replies.schemas import TYPES
from rowmill.errors import JobError
from rowmill.job.checks import chosen, not_blank, wrong
from rowmill.job.option_table import BY_KEY


def answer_schema(value: Any) -> Any:
    if isinstance(value, str):
        not_blank(value)
    elif not isinstance(value, dict) or not value:
        raise wrong("must be a mapping: fields to kinds, or a JSON Schema; or the name of a JSON file")
    _compiled(value)
    return value


def _compiled(schema: Any) -> Any:
    from rowmill.core.replies.schemas import compile_schema

    return _answers_words(lambda: compile_schema(schema))


def _answers_words(work: Callable[[], Any]) -> Any:
    """What `work` gives; its error without the key's name, which stands before it already."""
    try:
        return work()
    except JobError as error:
        words = re.sub(r"^answer\.(schema|fallback_for|fallback)(: | |\.)", "", str(error))
        raise wrong(words) from None


def names_python_model(text: str) -> bool:
    """Whether a schema given as text is `module:Model` rather than the shorthand `field: kind`."""
    found = re.fullmatch(r"[A-Za-z_][\w.]*:([A-Za-z_]\w*)", text)
    return found is not None and found[1] not in TYPES


def fallback_for(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise wrong("must be a list of statuses")
    return chosen(names, BY_KEY["answer.fallback_for"].choices)


def fallback(value: Any, schema: Any) -> None:
    """Refuses a fallback that does not fit the schema (None: the answer is text)."""
    from rowmill.core.replies.answers import compile_fallback

    _answers_words(lambda: compile_fallback(value, None if schema is None else _compiled(schema)))


def expect(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("must be a mapping of answer fields to the columns that hold the right values")
    return value


def expected_fields(expected: Mapping[str, str], schema: Any) -> None:
    """Refuses a field that no answer has."""
    known = ["answer"] if schema is None else [name for name, _ in _compiled(schema).columns]
    strange = [field for field in expected if field not in known]
    if strange:
        raise wrong(f"the answer has no field {', '.join(strange)}; it has {', '.join(known)}")
