"""What `test_chain_kills` starts and kills: chains of prompt, model and parser under a run file.

Arguments: the way of batching, how many inputs.  Every call of the model is a line in calls.txt; outputs go to
outputs.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda

from rowmill.integrations.langchain import RunnableBatch

CALLS = os.open("calls.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def chain(name: str) -> Runnable[dict[str, int], str]:
    """Answers with its own name and the input's."""

    async def model(prompt: Any) -> AIMessage:
        text = prompt.to_messages()[0].content
        os.write(CALLS, f"{text}\n".encode())
        await asyncio.sleep(0.02)
        return AIMessage(f"{name} {text}")

    def blocking(prompt: Any) -> AIMessage:
        return asyncio.run(model(prompt))

    template = ChatPromptTemplate.from_template("input {n}")
    return template | RunnableLambda(blocking, afunc=model) | StrOutputParser()


async def label(way: str, inputs: list[dict[str, int]]) -> list[str]:
    runnable = RunnableBatch(
        {"good": chain("good"), "cheap": chain("cheap")},
        route=lambda item: "good" if item["n"] % 3 == 0 else "cheap",
        max_concurrency={"good": 3, "cheap": 5},
        run_file="chain.rowmill",
    )
    if way == "abatch":
        return await runnable.abatch(inputs)
    return [output for _, output in sorted([pair async for pair in runnable.abatch_as_completed(inputs)])]


if __name__ == "__main__":
    outputs = asyncio.run(label(sys.argv[1], [{"n": n} for n in range(int(sys.argv[2]))]))
    Path("outputs.json").write_text(json.dumps([[output, type(output).__name__] for output in outputs]))
