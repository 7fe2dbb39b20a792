"""What holds the loop is named while it does."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from rowmill.core.replies.steps import RowState
from rowmill.engine.watchdog import Watchdog
from rowmill.records import Row


def test_a_row_that_holds_the_loop_is_named_with_the_function_that_does() -> None:
    said: list[str] = []
    heard = threading.Event()

    def say(words: str) -> None:
        said.append(words)
        heard.set()

    def dawdle(state: RowState) -> None:
        assert heard.wait(30)

    async def main() -> None:
        watchdog = Watchdog(say, held_s=0.1)
        watchdog.start()
        await asyncio.sleep(0)
        dawdle(RowState(Row(17, {})))
        watchdog.stop()

    asyncio.run(main())
    assert len(said) == 1
    assert " for row 17, in " in said[0]


def test_a_loop_that_answers_is_not_spoken_of() -> None:
    said: list[str] = []

    async def main() -> None:
        watchdog = Watchdog(said.append, held_s=1.0)
        watchdog.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1.2)
        watchdog.stop()

    asyncio.run(main())
    assert not said
