"""The budget of a search: what it claims, what it survives, what it costs and what it buys."""
