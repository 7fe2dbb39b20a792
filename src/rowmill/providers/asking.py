"""Asks for a schema in words, where a server cannot be held to one.  Must not know any dialect."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.records import Message
from rowmill.schemas import AnswerSchema


def with_schema(messages: Sequence[Message], schema: AnswerSchema) -> Sequence[Message]:
    """The messages with the schema in the system message, which is added where there is none."""
    text = msgspec.json.encode(schema.json_schema).decode()
    words = f"Answer with JSON only, no other words, matching this JSON Schema: {text}"
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{words}"), *messages[1:]]
    return [Message("system", words), *messages]
