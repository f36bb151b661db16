"""Simulated searches for a good smoothing radius."""
