"""Second accountant, built on numpy and the standard library; it uses nothing of the first accountant."""
