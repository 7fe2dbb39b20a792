"""aiohttp with a semaphore and gather; stores nothing."""

import asyncio

import aiohttp
from asked import report


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    slots = asyncio.Semaphore(in_flight)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(prompt: str) -> str | None:
            body = {"model": "bench", "messages": [{"role": "user", "content": prompt}]}
            async with slots, session.post(f"{url}/chat/completions", json=body) as reply:
                return (await reply.json())["choices"][0]["message"]["content"]

        answers = await asyncio.gather(*[one(prompt) for prompt in prompts])
    return sum(answer is not None for answer in answers)


report(ask)
