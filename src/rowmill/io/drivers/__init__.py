"""Owns connections to databases, for sources and sinks alike; must not know rows, outputs or what is asked of them."""
