"""LiteLLM's `acompletion` with a semaphore and gather."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import litellm
from asked import report


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    slots = asyncio.Semaphore(in_flight)

    async def one(prompt: str) -> str | None:
        async with slots:
            messages = [{"role": "user", "content": prompt}]
            reply = await litellm.acompletion(
                model="openai/bench", api_base=url, api_key="none", messages=messages, timeout=120
            )
            return reply.choices[0].message.content

    answers = await asyncio.gather(*[one(prompt) for prompt in prompts])
    return sum(answer is not None for answer in answers)


report(ask)
