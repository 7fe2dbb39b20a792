"""A LangChain chain under Rowmill's engine, with a run file: interrupt it (Ctrl-C, or kill -9) and start it again.

    python examples/chain.py

Needs langchain-core.  The model is a stand-in that takes 0.1 s; put your own in its place.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from rowmill.integrations.langchain import RunnableBatch

FOLDER = Path(__file__).parent
PROMPT = ChatPromptTemplate.from_template("Is this review positive or negative? {text}")

asked = 0


def answer(value: Any) -> AIMessage:
    """Stands where a chat model would."""
    global asked
    asked += 1
    time.sleep(0.1)
    return AIMessage("negative" if "not" in value.to_messages()[0].content else "positive")


def main() -> None:
    with open(FOLDER / "reviews.csv", encoding="utf-8", newline="") as file:
        reviews = list(csv.DictReader(file))
    chain = PROMPT | RunnableLambda(answer) | StrOutputParser()
    batch = RunnableBatch(chain, max_concurrency=8, attempts=3, run_file="chain.rowmill")
    labels = batch.batch([{"text": review["text"]} for review in reviews])
    print(f"{len(labels)} reviews labelled; {asked} asked about now, the others came from chain.rowmill")


if __name__ == "__main__":
    main()
