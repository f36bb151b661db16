"""The ledger of a data set: entries, rules, state, stores, and the odometer that reads it."""
