"""Owns one session of a run: from the lock on the run file to the last commit."""
