"""Owns how a row becomes a request: templates, parameters and which endpoint it is for."""
