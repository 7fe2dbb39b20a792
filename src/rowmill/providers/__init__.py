"""Owns the dialects of APIs: a request into bytes, a raw reply into a reply; must not know lanes or retries."""

from collections.abc import Mapping

TABLE: Mapping[str, str] = {
    "openai": "rowmill.providers.openai:OpenAIProvider",
    "openai_batch": "rowmill.providers.openai_bodies:BatchProvider",
    "anthropic": "rowmill.providers.anthropic:AnthropicProvider",
    "http": "rowmill.providers.custom_http:HttpProvider",
    "callable": "rowmill.providers.callable:CallableProvider",
    "local": "rowmill.providers.local:LocalProvider",
}
