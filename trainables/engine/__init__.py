"""The private step: objective, per-sample gradients, clip, noise, post-processing, update; a module for each."""
