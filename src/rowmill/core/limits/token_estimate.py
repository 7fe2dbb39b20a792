"""How many tokens a request will take, from its bytes and from what the lane has seen; no tokenizer.

It must not know of models or providers: the usage that replies report calibrates it.
"""

from __future__ import annotations

import math
from collections import deque

from rowmill.core.limits.rate import Need

FIRST_TOKENS_PER_BYTE = 1 / 3.0  # English prose takes 0.2 to 0.25 with its JSON around it, Chinese up to 0.4
FIRST_MARGIN = 0.1
FORGETS = 0.98
SAMPLES_BEFORE_PERCENTILE = 30
SAMPLES_KEPT = 256
SORTED_EVERY = 32
PERCENTILE = 0.9
UNKNOWN_OUTPUT_TOKENS = 256
LARGEST_GUESS = 0.1  # of the limit, so that a guess alone never holds the lane back


class TokenEstimate:
    """One lane's estimate.  O(1) a row; both figures lean to the high side.

    `counts_max_tokens` says that the provider charges a request's `max_tokens` to its limit, whatever is
    answered (a field of the preset).
    """

    def __init__(self, counts_max_tokens: bool = False) -> None:
        self.counts_max_tokens = counts_max_tokens
        self._tokens = 0.0
        self._bytes = 0.0
        self._ratio = FIRST_TOKENS_PER_BYTE
        self._miss = FIRST_MARGIN
        self._outputs: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._seen = 0
        self._percentile = 0

    def need(self, request_bytes: int, max_tokens: int | None, most_tokens: float | None = None) -> Need:
        """What to reserve for a request.

        `max_tokens` is None where the request does not say.  `most_tokens` is the lane's limit a window: where
        the output has to be guessed, the guess stays far below it.
        """
        tokens_in = math.ceil(request_bytes * self._ratio * (1.0 + self._miss))
        return Need(tokens_in, self._output_tokens(max_tokens, most_tokens))

    def observe(self, request_bytes: int, input_tokens: int | None, output_tokens: int | None) -> None:
        """A reply reported its usage; None where it did not."""
        if input_tokens and request_bytes > 0:
            self._observe_input(request_bytes, input_tokens)
        if output_tokens is not None:
            self._outputs.append(output_tokens)
            self._seen += 1
            if self._seen == SAMPLES_BEFORE_PERCENTILE or self._seen % SORTED_EVERY == 0:
                ordered = sorted(self._outputs)
                self._percentile = ordered[int(PERCENTILE * (len(ordered) - 1))]

    def _output_tokens(self, max_tokens: int | None, most_tokens: float | None) -> int:
        if max_tokens is not None and (self.counts_max_tokens or self._seen < SAMPLES_BEFORE_PERCENTILE):
            return max_tokens
        if self._seen >= SAMPLES_BEFORE_PERCENTILE:
            return self._percentile if max_tokens is None else min(self._percentile, max_tokens)
        guess = max(self._outputs, default=UNKNOWN_OUTPUT_TOKENS)
        return guess if most_tokens is None else min(guess, math.ceil(LARGEST_GUESS * most_tokens))

    def _observe_input(self, request_bytes: int, input_tokens: int) -> None:
        """The ratio weighs by bytes; the margin is the usual miss of the estimate made before."""
        if self._bytes:
            miss = abs(input_tokens / (request_bytes * self._ratio) - 1.0)
            self._miss += (1.0 - FORGETS) * (min(miss, 1.0) - self._miss)
        self._tokens = FORGETS * self._tokens + input_tokens
        self._bytes = FORGETS * self._bytes + request_bytes
        self._ratio = self._tokens / self._bytes
