"""What the living host is like: patterns, limits, handlers, processes."""
