"""Owns what a reply means: its answer or its failure, and what the row does next."""
