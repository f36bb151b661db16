"""What the search costs in accuracy: the price of search, by arm, ε and workload."""
