"""`RunnableBatch.abatch` beside `chain.abatch` on a model that answers at once: overhead a row, paired medians."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from itertools import product
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate

from bench.results import keep
from rowmill.integrations.langchain import RunnableBatch

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable


class Instant(BaseChatModel):
    """Answers at once.  (FakeListChatModel takes a batch one by one, which is nothing to compare with.)"""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("yes"))])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages)

    @property
    def _llm_type(self) -> str:
        return "instant"


MODEL = Instant()
CHAINS: dict[str, tuple[Runnable[Any, Any], Any]] = {
    "model": (MODEL, "Is it good?"),
    "prompt, model, parser": (ChatPromptTemplate.from_template("Is {n} good?") | MODEL | StrOutputParser(), {"n": 1}),
}


async def one(runnable: Runnable[Any, Any], inputs: list[Any], limit: int | None) -> float:
    """Microseconds of the processor a row, which other processes disturb less than time does."""
    gc.collect()
    started = time.process_time()
    await runnable.abatch(inputs, {"max_concurrency": limit} if limit else None)
    return (time.process_time() - started) / len(inputs) * 1e6


LIMITS = (None, 1, 5, 20, 200)
REACH = 1.10


async def compare(rows: int = 2_000, pairs: int = 9) -> dict[str, float]:
    """The median ratio of each chain at each limit; with retries the engine is in between."""
    ratios = {}
    for name, limit, attempts in product(CHAINS, LIMITS, (None, 3)):
        chain, item = CHAINS[name]
        theirs, ours = [], []
        batch = RunnableBatch(chain) if attempts is None else RunnableBatch(chain, attempts=attempts)
        what = f"{name}, max_concurrency {limit}" + (f", attempts {attempts}" if attempts else "")
        await one(batch, [item] * 100, limit)
        for turn in range(pairs):
            order = [(chain, theirs), (batch, ours)]
            for runnable, times in order if turn % 2 else reversed(order):
                times.append(await one(runnable, [item] * rows, limit))
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        ratios[what] = ratio
        print(
            f"{what}: {statistics.median(ours):.0f} µs a row, "
            f"LangChain {statistics.median(theirs):.0f} µs; median ratio {ratio:.2f} (reach: {REACH:.2f})",
            flush=True,
        )
    return ratios


def main() -> None:
    """About three minutes."""
    keep("langchain", {"ratios": asyncio.run(compare())})


if __name__ == "__main__":
    main()
