"""LangChain's `abatch`."""

from asked import report
from langchain_openai import ChatOpenAI


async def ask(url: str, prompts: list[str], in_flight: int) -> int:
    model = ChatOpenAI(base_url=url, api_key="none", model="bench", timeout=120)
    answers = await model.abatch(prompts, config={"max_concurrency": in_flight})
    return sum(bool(answer.content) for answer in answers)


report(ask)
