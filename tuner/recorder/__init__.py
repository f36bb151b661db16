"""Tracking: every record of a sweep goes to a spool on disk first, and a sender empties the spool into MLflow."""
