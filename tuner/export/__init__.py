"""Export of a sweep's best trial (model, configuration and privacy card), and the check of an export."""
