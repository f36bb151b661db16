"""Runs a sweep from its start to its end: one module for each accounting mode."""
