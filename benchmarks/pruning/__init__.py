"""How many trial-epochs, and how much ε, a search needs to find a good smoothing radius, in simulated sweeps."""
