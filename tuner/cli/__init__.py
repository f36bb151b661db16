"""The commands: each parses its options, calls one function, prints its answer and sets its exit code."""
