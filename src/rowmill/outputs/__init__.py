"""Owns output rows, their column names and their Arrow schema; must not know files."""

from __future__ import annotations

from rowmill.outputs.arrow import arrow_schema, mark_of, marked
from rowmill.outputs.batch import FAILURE_KEY, Batch, failure_record
from rowmill.outputs.columns import AnswerColumn, OutputColumns, input_columns

__all__ = [
    "FAILURE_KEY",
    "AnswerColumn",
    "Batch",
    "OutputColumns",
    "arrow_schema",
    "failure_record",
    "input_columns",
    "mark_of",
    "marked",
]
