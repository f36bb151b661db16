"""The search itself: what to try next, when to stop a trial, what to tell Optuna. No Ray, no MLflow, no torch."""
