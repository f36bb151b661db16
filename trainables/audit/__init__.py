"""Audits of private training on public records: a lower bound of ε from one run, and the effect of one record on a sum."""
