"""The ledger, the durable record of all charges to data sets: entries, rules, state, stores and odometer."""
