"""Verification of a privacy card by an accountant that shares no code with the one that wrote it."""
