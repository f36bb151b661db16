"""Executors, which run the trials that the driver suggests: `local` in this process, `ray` on a Ray cluster."""
