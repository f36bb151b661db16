"""Export of a sweep: the best trial's model, configuration and privacy card; the check of exports and cards."""
