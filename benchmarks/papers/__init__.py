"""The published tables of the five papers, next to what this implementation measures."""
