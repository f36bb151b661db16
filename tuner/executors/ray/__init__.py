"""The executor on Ray Tune: runner, session, and the actor that charges the ledger."""
