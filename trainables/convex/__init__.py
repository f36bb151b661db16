"""Private minima of a convex loss, as baselines of input perturbation: logistic regression alone, never a network."""
