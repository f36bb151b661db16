"""Samplers. The module `make` creates a sampler from its name. Each other module has the name of its sampler."""
