"""Reply -> Answer or Failure: reasoning taken apart, fences taken off, the schema held to; repair and fallback.

Must not know providers, and must not decide what follows from a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rowmill.core.replies.failures import EXCERPT_CHARS
from rowmill.core.replies.schemas import AnswerSchema, compile_schema, is_json_schema
from rowmill.core.replies.surrogates import text_without_lone_surrogates
from rowmill.errors import FailureKind, JobError
from rowmill.ports import AnswerReader
from rowmill.records import Answer, Failure, Message, Reply, Status

__all__ = [
    "AnswerSchema",
    "Fallback",
    "compile_fallback",
    "compile_schema",
    "is_json_schema",
    "read_answer",
    "repair_messages",
    "reply_text",
]

STANDS_IN_FOR = (Status.INVALID, Status.REFUSED, Status.TRUNCATED, Status.FILTERED)
REPAIR_CHARS = 8000  # of a bad reply that is shown to the model again

_CUT = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_FILTERED = frozenset({"content_filter", "safety", "sensitive", "recitation", "prohibited_content"})
_CALLS = frozenset({"tool_calls", "tool_use", "function_call"})
_BROKEN = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
_THOUGHT_HEAD = re.compile(r"\s*<(think|thinking)>")
_LOOSE_END = re.compile(r"</(?:think|thinking)>")
_FENCE = "```"
_FENCE_HEAD = re.compile(r"[\w+-]*[ \t]*\r?\n?")


def read_answer(
    reply: Reply, schema: AnswerReader | None, parse: Callable[[str], object] | None = None
) -> Answer | Failure:
    """Reads one reply.  Without a schema the answer is the text exactly as replied, reasoning taken off.

    `parse` is the user's: it makes a value of the text, which the schema then checks.

    Failures: FILTERED, REFUSED, TRUNCATED (`values` keep the text under `answer`, whatever the schema),
    UNREADABLE (no text), INVALID (the message holds the path of the fault, the excerpt the text).
    """
    text, reasoning = _parted(reply, schema)
    finish = (reply.finish_reason or "").lower()
    if finish in _FILTERED:
        return _failure(FailureKind.FILTERED, f"the content filter ended the reply ({finish})", text, reasoning)
    if reply.refusal:
        return _failure(FailureKind.REFUSED, reply.refusal, text, reasoning)
    if finish in _CUT:
        kept = {"answer": text} if text else None
        advice = "the reply ended at the token limit; a higher --max-tokens may help"
        return _failure(FailureKind.TRUNCATED, advice, text, reasoning, kept)
    if finish in _BROKEN:
        return _failure(FailureKind.UNREADABLE, f"the server broke off ({finish})", text, reasoning)
    if not text and finish in _CALLS:
        # Asking again would be answered, and paid for, in the same way.
        words = (
            "the reply calls a tool and holds no text, and the job takes text; state no `tools`, or read them yourself"
        )
        return _failure(FailureKind.INVALID, words, text, reasoning, may_retry=False)
    if not text or text.isspace():
        ended = f" (finish reason {finish})" if finish else ""
        return _failure(FailureKind.UNREADABLE, f"the reply holds no text{ended}", text, reasoning)
    if parse is not None:
        read = _parsed(text, parse, schema)
    elif schema is None:
        return Answer({"answer": text}, reasoning)
    else:
        read = _read(text, schema)
    if isinstance(read, str):
        return _failure(FailureKind.INVALID, read, text, reasoning)
    return Answer(read, reasoning)


def _read(text: str, schema: AnswerReader) -> Mapping[str, object] | str:
    """The strict parse first; then without what is known to spoil it: half a character, a fence around it all."""
    read = schema.read(text)
    if not isinstance(read, str):
        return read
    bare = _unfenced(text_without_lone_surrogates(text))
    return read if bare is text else schema.read(bare)


def _unfenced(text: str) -> str:
    """The text without a fence that wraps the whole of it; the same object where there is none.

    Linear in the text, as everything that sees a reply must be: no pattern with repeats that could match alike.
    """
    stripped = text.strip()
    if len(stripped) < 2 * len(_FENCE) or not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE)):
        return text
    inner = stripped[len(_FENCE) : -len(_FENCE)]
    head = _FENCE_HEAD.match(inner)
    return inner[head.end() if head else 0 :].rstrip()


def _parsed(text: str, parse: Callable[[str], object], schema: AnswerReader | None) -> Mapping[str, object] | str:
    try:
        value = parse(text)
        if schema is not None:
            return schema.read(msgspec.json.encode(value).decode())
        if value is not None:
            return {"answer": value if isinstance(value, str) else msgspec.json.encode(value).decode()}
    except Exception as error:  # the user's function may raise anything
        return f"parse raised {type(error).__name__}: {error}"
    return "parse gave nothing"


def _parted(reply: Reply, schema: AnswerReader | None) -> tuple[str | None, str | None]:
    """Text and reasoning of a reply, wherever the server put them."""
    text, reasoning = reply.text, reply.reasoning or None
    if not text and reasoning and not reply.refusal and reply.finish_reason in (None, "stop"):
        # Everything came as reasoning: the server looked for the end of thoughts that never began.
        text, reasoning = reasoning, None
    if not text or "<" not in text or ("</think" not in text and "<think" not in text):
        return text, reasoning
    if schema is not None and not isinstance(schema.read(text), str):
        return text, reasoning  # the tag stands inside a valid answer
    thought, rest = _split_thought(text)
    if thought is None:
        return text, reasoning
    thoughts = [part.strip() for part in (reasoning, thought) if part and part.strip()]
    return rest.lstrip(), "\n".join(thoughts) or None


def _split_thought(text: str) -> tuple[str | None, str]:
    """(thought, rest); thought is None where there is none.  An unclosed thought leaves no rest."""
    opened = _THOUGHT_HEAD.match(text)
    if opened is not None:
        thought, _, rest = text[opened.end() :].partition(f"</{opened[1]}>")
        return thought, rest
    end = _LOOSE_END.search(text)
    return (None, text) if end is None else (text[: end.start()], text[end.end() :])


def _failure(
    kind: FailureKind,
    message: str,
    text: str | None,
    reasoning: str | None,
    values: Mapping[str, object] | None = None,
    *,
    may_retry: bool | None = None,
) -> Failure:
    excerpt = (text or "")[:EXCERPT_CHARS]
    return Failure(kind, message, excerpt=excerpt, values=values, reasoning=reasoning, retry=may_retry)


# --- repair and fallback ----------------------------------------------------------------------------------


def reply_text(reply: Reply) -> str:
    """What a reply says besides its reasoning, as a repair shows it to the model."""
    return _parted(reply, None)[0] or ""


def repair_messages(messages: Sequence[Message], bad_reply: str, fault: str) -> Sequence[Message]:
    """Asks again with the fault shown.

    `messages` are the row's own, never those of an earlier repair: the prompt grows by one bad reply, not by
    each.
    """
    if len(bad_reply) > REPAIR_CHARS:
        bad_reply = bad_reply[:REPAIR_CHARS] + " [...]"
    correction = f"That is not a valid answer: {fault}\nReply again with the whole corrected answer and nothing else."
    return [*messages, Message("assistant", bad_reply), Message("user", correction)]


@dataclass(frozen=True, slots=True)
class Fallback:
    """The value that stands in for an answer, as answer columns, and the statuses that it stands in for."""

    values: Mapping[str, object]
    statuses: frozenset[Status]


def compile_fallback(
    value: object, schema: AnswerReader | None, stands_in_for: Iterable[str] = (Status.INVALID,)
) -> Fallback:
    """Checks a fallback against the schema; raises JobError where it does not fit."""
    statuses = frozenset(stands_in_for)
    wrong = sorted(statuses.difference(STANDS_IN_FOR))
    if wrong:
        allowed = ", ".join(STANDS_IN_FOR)
        raise JobError(f"answer.fallback_for: {', '.join(wrong)} is none of {allowed}")
    return Fallback(_fallback_values(value, schema), frozenset(Status(status) for status in statuses))


def _fallback_values(value: object, schema: AnswerReader | None) -> Mapping[str, object]:
    if schema is None:
        text = value.get("answer") if isinstance(value, Mapping) and set(value) == {"answer"} else value
        if not isinstance(text, str):
            raise JobError("answer.fallback: must be text, since there is no answer.schema")
        return {"answer": text}
    read = schema.read(msgspec.json.encode(value).decode())
    if isinstance(read, str):
        raise JobError(f"answer.fallback does not fit answer.schema: {read}")
    return read
