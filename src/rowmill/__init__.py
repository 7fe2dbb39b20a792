"""Rowmill runs an LLM over every row of a data set."""
