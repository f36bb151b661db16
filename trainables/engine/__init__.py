"""Private step: objective, per-sample gradients, clip, noise, post-processing, update; one module each."""
