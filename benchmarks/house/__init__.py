"""Measurements of the code's layout; `python -m benchmarks.house` prints them."""
