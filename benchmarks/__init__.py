"""Measurements that a reader can repeat with ``python -m benchmarks.NAME``."""
