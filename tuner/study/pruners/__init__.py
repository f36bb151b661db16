"""Pruners. `make` creates a pruner by its name from one of the other modules."""
