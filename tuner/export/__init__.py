"""Exports of a sweep: the best configuration, its model and its privacy card."""
