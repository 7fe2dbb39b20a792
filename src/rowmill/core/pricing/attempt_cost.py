"""What one attempt has cost: known from its usage, nothing where it was refused, unknown where it may be billed.

Must not know budgets, lanes or stores.
"""

from __future__ import annotations

from rowmill.core.pricing.prices import Price
from rowmill.failure_kinds import MAYBE_BILLED
from rowmill.records import Failure, RawReply, Reply


def attempt_cost(
    price: Price | None, raw: RawReply | Failure, reply: Reply | None, failure: Failure | None
) -> float | None:
    """USD of one attempt, None where it is unknown.

    `reply` is what was read of `raw`, None where it is no reply; `failure` is what went wrong.
    """
    if reply is not None:
        return None if price is None else price.cost(reply.usage)
    if isinstance(raw, RawReply) and raw.status >= 300:
        return 0.0
    if failure is not None and failure.kind not in MAYBE_BILLED:
        return 0.0
    return 0.0 if price is not None and price.is_free else None
