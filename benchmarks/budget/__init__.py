"""What the budget of a search survives, and what it costs."""
