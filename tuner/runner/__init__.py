"""Runner of sweeps from start to end. Each accounting mode has its own module."""
