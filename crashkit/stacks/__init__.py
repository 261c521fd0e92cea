"""Native and Python frames of every thread, merged into one stack."""
