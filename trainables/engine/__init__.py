"""Private step. Each stage has a module: objective, per-sample gradients, clip, noise, post-processing and update."""
