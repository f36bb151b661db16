"""Samplers. `make` creates a sampler by its name, which is also the name of the sampler's module."""
