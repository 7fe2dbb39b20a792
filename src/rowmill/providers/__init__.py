"""Owns the dialects of APIs: a request into bytes, a raw reply into a reply; must not know lanes or retries."""
