"""Limits that a lane keeps: how fast, how many at once, how much money.  Arithmetic only; time is passed in."""
