"""Owns what a user can ask for, a module each; must not know how it is typed or shown."""
