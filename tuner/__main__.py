"""`python -m tuner`: the program under a name that nothing else can own."""

from tuner.cli.app import main

main()
