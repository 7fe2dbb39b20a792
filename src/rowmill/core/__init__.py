"""Owns the rules: pure, without input or output, waiting or clocks, which are passed in."""
