"""Owns what a run file is written out to, and what is read again on the way."""
