"""async-batch-llm with its SQLite store."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from asked import report
from async_batch_llm import SqliteArtifactStore, llm, process_prompts
from async_batch_llm.artifacts import ArtifactIdentity


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    logging.disable(logging.INFO)
    identity = ArtifactIdentity(provider="bench", model="bench", prompt_version="1", parser_version="1")
    strategy = llm("openai-compatible:bench", base_url=url, api_key="none")
    with TemporaryDirectory() as folder:
        store = SqliteArtifactStore(str(Path(folder, "run.sqlite")), identity=identity)
        batch = await process_prompts(strategy, prompts, concurrency=in_flight, artifact_store=store)
    return sum(result.success for result in batch.results)


report(ask)
