"""The platform: experiment file, budget, search, execution, tracking, export and commands."""

__version__ = "0.1.0"
