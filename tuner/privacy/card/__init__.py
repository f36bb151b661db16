"""The privacy card of an export: its sections, its page and its curve."""
