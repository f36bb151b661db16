"""What a search survives: random faults of a simulated cluster, and real sweeps with one fault each."""
