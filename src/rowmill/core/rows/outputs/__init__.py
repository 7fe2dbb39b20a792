"""Owns output rows, their column names and their Arrow schema; must not know files."""

from __future__ import annotations

from rowmill.core.rows.outputs.arrow import arrow_batch, arrow_schema, mark_of, marked
from rowmill.core.rows.outputs.columns import AnswerColumn, OutputColumns, input_columns
from rowmill.core.rows.outputs.output_rows import FAILURE_KEY, Batch, failure_record

__all__ = [
    "FAILURE_KEY",
    "AnswerColumn",
    "Batch",
    "OutputColumns",
    "arrow_batch",
    "arrow_schema",
    "failure_record",
    "input_columns",
    "mark_of",
    "marked",
]
