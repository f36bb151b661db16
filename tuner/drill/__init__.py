"""The drill: a small public sweep whose processes are killed, and the comparison of its charges, draws and records."""
