"""The supervisor of `crashkit run` and what it watches."""
