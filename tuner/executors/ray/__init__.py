"""Executor on Ray Tune: the runner, the Ray session, and the actor that charges the ledger."""
