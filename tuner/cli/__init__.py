"""The command line: each command parses its options, calls one function, prints the answer and sets the exit code."""
