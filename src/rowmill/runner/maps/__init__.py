"""Owns `map`: values in, values out, with a prompt or a function, in memory or with a run file."""
