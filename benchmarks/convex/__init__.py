"""Input perturbation and its baselines on six tables: accuracy and optimality gap by ε."""
