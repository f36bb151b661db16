"""Inference for scores with one maximum along a parameter. It uses numpy and scipy only, and no Optuna."""
