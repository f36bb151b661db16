"""Inference from scores with one top along a parameter: numpy and scipy only, no Optuna."""
