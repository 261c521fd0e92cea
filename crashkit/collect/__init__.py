"""Collect evidence of crashes on this machine: `run`, `doctor` and `enable`, and what they need from the host."""
