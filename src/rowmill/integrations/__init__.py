"""Rowmill inside other libraries; each module needs its library installed."""
