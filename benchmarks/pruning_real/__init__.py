"""What a search for the smoothing radius finds on real data for one total ε."""
