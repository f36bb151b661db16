"""Sweep: its folder and lock, preflight, entry in the ledger, study and winner."""
