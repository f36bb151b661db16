"""Pruners. The module `make` creates a pruner by its name, and the other modules define the pruners."""
