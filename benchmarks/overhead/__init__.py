"""What everything around the trials costs: commands in CPU time, and sweeps of trivial trials against plain ones."""
