"""Asks for a schema in words, where a server cannot be held to one.  Must not know any dialect."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.ports import AnswerReader
from rowmill.records import Message


def instruction(schema: AnswerReader) -> str:
    """The words that ask for an answer that fits a schema."""
    return f"Answer with JSON that matches this schema: {msgspec.json.encode(schema.json_schema).decode()}"


def instructed(messages: Sequence[Message], words: str) -> Sequence[Message]:
    """The messages with the words at the end of the first system message, or as one of its own."""
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{words}"), *messages[1:]]
    return [Message("system", words), *messages]
