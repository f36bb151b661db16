"""PATE: Table 13 of the DPLIS paper by our accountants, and a student with and without smoothing."""
