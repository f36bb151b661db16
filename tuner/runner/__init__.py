"""Functions that run a sweep from start to end. Each accounting mode has its own module."""
