"""Measurements that a reader can repeat: each module is run with ``python -m benchmarks.NAME``."""
