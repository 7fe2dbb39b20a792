"""The engine: feeds rows to lanes, sends, waits, saves, stops.  It sees the vocabulary and the rules, nothing else."""
