"""Entry point of `python -m tuner`. It works even if another program owns the name `tune`."""

from tuner.cli.app import main

main()
