"""Searches for the smoothing radius on real data."""
