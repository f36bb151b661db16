"""Faults planted on purpose in the source, each with the test that must notice it: `python -m benchmarks.planted`."""
