"""What depends on the processor."""
