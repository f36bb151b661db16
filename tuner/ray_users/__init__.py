"""For Ray's own users: a trainable that charges the ledger, and our samplers and pruners, in anybody's `tune.Tuner`."""
