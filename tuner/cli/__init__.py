"""The command line. A command parses its options, calls one function, prints the result and sets the exit code."""
