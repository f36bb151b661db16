"""How much of DPLIS' published gain is smoothing? Accuracy over R on validation records."""
