"""Reports for people: the live table, the tables before and after a sweep, and HTML pages."""
