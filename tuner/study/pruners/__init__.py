"""Pruners: one module each, and `make`, which creates a pruner by its name."""
