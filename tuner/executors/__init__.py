"""Executors: run the trials that the driver suggests, in this process (`local`) or on a Ray cluster (`ray`)."""
