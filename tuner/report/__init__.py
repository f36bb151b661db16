"""What a person sees: the live table, the tables before and after a sweep, and the HTML page."""
