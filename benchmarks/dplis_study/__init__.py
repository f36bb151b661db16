"""The share of smoothing in DPLIS' published gain."""
