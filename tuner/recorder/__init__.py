"""Records of a sweep: written to a spool on disk first, then sent to MLflow."""
