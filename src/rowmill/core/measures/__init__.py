"""Owns measuring: latencies in bins, when a measurement is over, how often memory is searched for cycles."""
