"""Samplers. The module `make` creates a sampler by its name. Each other sampler module has the name of its sampler."""
