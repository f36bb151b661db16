"""Samplers: one module each, and `make`, which creates a sampler by its name."""
