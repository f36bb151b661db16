"""Samplers: one module each, and `make`, which creates one by its name."""
