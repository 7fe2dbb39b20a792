"""Owns what a name tells by itself: of a file, here or elsewhere, or of a database."""
