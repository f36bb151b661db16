"""Export of the best trial of a sweep with its model, configuration and privacy card, and checks of an export."""
