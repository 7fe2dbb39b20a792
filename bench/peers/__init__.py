"""The peers, a script each, run by a Python of their own: `python PEER.py URL REQUESTS IN_FLIGHT` prints one JSON line.

Each asks the same prompts as Rowmill's rows, as its own documentation shows it.
"""
