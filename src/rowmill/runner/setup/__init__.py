"""Owns how a job becomes parts: source, endpoints with their prompts and prices, versions; nothing runs here."""
