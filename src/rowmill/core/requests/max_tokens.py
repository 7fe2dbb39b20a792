"""The limit on an answer's tokens among a request's parameters, under either of its names."""

from __future__ import annotations

from collections.abc import Mapping

MAX_TOKENS_NAMES = ("max_tokens", "max_completion_tokens")


def max_tokens_of(params: Mapping[str, object]) -> int | None:
    """The most tokens that an answer may have, None where no number limits it.

    Of both names the larger counts: which of them a server heeds is not known, and rates and budget must hold.
    """
    older, newer = params.get("max_tokens"), params.get("max_completion_tokens")
    if not isinstance(newer, int):
        return older if isinstance(older, int) else None
    return max(older, newer) if isinstance(older, int) else newer
