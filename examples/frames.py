"""A pandas and a polars frame in and out, labelled by the embedded toy model.

    python examples/frames.py

Needs pandas, polars and the embedded model (`make setup` installs all three).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl

import rowmill

REVIEWS = Path(__file__).parent / "reviews.csv"
PROMPT = "Is this review positive or negative?\n\n{{ text }}"
ANSWER = "sentiment: positive|negative"


def main() -> None:
    of_pandas = pd.read_csv(REVIEWS).head(6)
    labelled = rowmill.map(of_pandas, prompt=PROMPT, answer=ANSWER, model="local/smollm2")
    print(type(labelled), labelled[["text", "sentiment", "_status"]], sep="\n")

    of_polars = pl.read_csv(REVIEWS).head(6)
    again = rowmill.map(of_polars, prompt=PROMPT, answer=ANSWER, model="local/smollm2")
    print(type(again), again.select("text", "sentiment", "_latency_s"), sep="\n")


if __name__ == "__main__":
    main()
