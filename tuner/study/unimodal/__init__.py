"""Sampler and pruner for a score that has one top along a parameter."""
