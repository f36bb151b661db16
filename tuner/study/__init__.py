"""Decisions of a search: which configuration to try next, when to stop a trial, and which trial is the best.

This package imports neither Ray nor MLflow nor torch.
"""
