"""Measurement of the shipped prior on public data sets: how good settings depend on noise, steps, batch and model."""
