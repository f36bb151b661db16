"""Verification of a privacy card, with a second accountant that shares no code with the first accountant."""
