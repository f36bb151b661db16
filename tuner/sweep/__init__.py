"""The folder of a sweep: its files, its lock, its entry in the ledger, its study and its winner."""
