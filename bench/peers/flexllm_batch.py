"""flexllm's batch with its checkpoint file."""

from pathlib import Path
from tempfile import TemporaryDirectory

from asked import report
from flexllm import LLMClient


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    client = LLMClient(
        provider="openai", base_url=url, api_key="none", model="bench", concurrency_limit=in_flight, max_qps=1_000_000
    )
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    with TemporaryDirectory() as folder:
        output = str(Path(folder, "out.jsonl"))
        batch = await client.chat_batch(messages, show_progress=False, output_jsonl=output)
    return sum(bool(result.content) for result in batch)


report(ask)
