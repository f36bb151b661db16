"""Second accountant. It needs only numpy and the standard library, and shares no code with the first accountant."""
