"""Owns what crosses the border of the process: rows in and out, files, databases, HTTP."""
