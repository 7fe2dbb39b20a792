"""Owns money as arithmetic: prices, the cost of an attempt, a budget's reservations, a quote's intervals."""
