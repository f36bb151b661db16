"""Sampler and pruner for a score that has one maximum along a parameter."""
