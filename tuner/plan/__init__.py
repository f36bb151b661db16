"""The plan of a search: trials, steps, noise and ε, computed from the experiment file alone."""
