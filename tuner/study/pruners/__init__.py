"""Pruners. The module `make` creates a pruner from its name, and the other modules define the pruners."""
