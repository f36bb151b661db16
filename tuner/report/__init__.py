"""Reports for people: the live view, the text before and after a sweep, and HTML pages."""
