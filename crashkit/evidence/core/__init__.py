"""CPU cores."""
