"""What the budget of a search survives, what it costs, and what it buys."""
