"""The OpenAI SDK with a semaphore and gather."""

import asyncio

from asked import report
from openai import AsyncOpenAI


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    client = AsyncOpenAI(base_url=url, api_key="none")
    slots = asyncio.Semaphore(in_flight)

    async def one(prompt: str) -> str | None:
        async with slots:
            reply = await client.chat.completions.create(
                model="bench", messages=[{"role": "user", "content": prompt}], timeout=120
            )
            return reply.choices[0].message.content

    answers = await asyncio.gather(*[one(prompt) for prompt in prompts])
    return sum(answer is not None for answer in answers)


report(ask)
