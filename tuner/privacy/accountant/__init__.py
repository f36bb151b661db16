"""The accountant: mechanisms, filters, ε by privacy loss distributions and by Rényi divergences, and calibration."""
