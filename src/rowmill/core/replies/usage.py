"""Whether the tokens that a reply reports can be true; what cannot be is unknown, and money then counts the worst.

Must not know dialects: providers say what was reported, by whatever name.
"""

from __future__ import annotations

from rowmill.records import Usage

# Ten times the longest context on offer, and what fits a column of the run file.
MOST_TOKENS = 100_000_000


def as_count(value: object) -> int | None:
    """A number of tokens; None for anything that cannot be one: negative, absurd, no number."""
    if type(value) is not int and type(value) is not float:  # what JSON is decoded to; true is neither
        return None
    return int(value) if 0 <= value <= MOST_TOKENS and value == int(value) else None


def judged(usage: Usage, total: int | None = None, *, has_text: bool) -> Usage:
    """The usage as far as it can be true.

    Some vendors report reasoning beside the output and not within it: then `total`, the sum as reported (None where it
    was not), less the input is the output.  A total below its parts contradicts itself, and zero beside a text is no
    count; both are unknown.
    """
    return judged_counts(_counted(usage), total, has_text=has_text)


def judged_counts(counted: Usage, total: int | None, *, has_text: bool) -> Usage:
    """As `judged`, where every number is one that `as_count` lets pass."""
    asked, said, thought = counted.input_tokens, counted.output_tokens, counted.reasoning_tokens or 0
    if has_text:
        asked, said = asked or None, said or None
    if total is not None and asked is not None and said is not None:
        if total < asked + max(said, thought):
            return Usage()
        said = max(said, total - asked)
    if said is not None and thought > said:
        said = None
    if asked is not None and (counted.cached_input_tokens or 0) + (counted.cache_write_tokens or 0) > asked:
        asked = None
    return counted.replaced(input_tokens=asked, output_tokens=said)


def _counted(usage: Usage) -> Usage:
    return Usage(
        input_tokens=as_count(usage.input_tokens),
        output_tokens=as_count(usage.output_tokens),
        cached_input_tokens=as_count(usage.cached_input_tokens),
        cache_write_tokens=as_count(usage.cache_write_tokens),
        reasoning_tokens=as_count(usage.reasoning_tokens),
        cache_write_1h_tokens=as_count(usage.cache_write_1h_tokens),
    )
