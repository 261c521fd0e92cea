"""Logs and other texts."""
