"""Owns the run file: the truth about a run; must not know requests, lanes or outputs."""
