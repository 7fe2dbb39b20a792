"""The Python API: what `import rowmill` offers.  It turns Python's values into jobs and back, and decides nothing."""
