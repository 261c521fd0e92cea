"""Reads the evidence of a crash: cores, logs, other texts and crash folders."""
