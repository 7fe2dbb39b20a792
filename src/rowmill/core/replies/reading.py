"""Raw reply -> reply, by the provider that sent the request, with what no dialect should be stopped by taken out."""

from __future__ import annotations

from rowmill.core.replies.surrogates import without_lone_surrogates
from rowmill.ports import Provider
from rowmill.records import Failure, RawReply, Reply

OK = 200


def read_reply(provider: Provider, raw: RawReply) -> Reply | Failure:
    """What the provider reads of a reply; once more without half characters where that is why it could not."""
    read = provider.read(raw)
    return second_look(provider, raw, read) if isinstance(read, Failure) else read


def second_look(provider: Provider, raw: RawReply, read: Failure) -> Reply | Failure:
    """The second look at a reply that was read as a failure."""
    if raw.status != OK:
        return read
    mended = without_lone_surrogates(raw.body)
    return read if mended is raw.body else provider.read(raw.replaced(body=mended))
