"""Privacy card of an exported model: its sections, its page and its curve."""
