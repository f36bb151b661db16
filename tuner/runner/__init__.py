"""Runner of sweeps, from start to end: one module for each accounting mode."""
