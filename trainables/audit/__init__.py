"""Audits of private training on public records: a lower bound of ε, and how far one record moves a sum."""
