"""Finds secrets in texts of every kind and masks them: the names and shapes are data (rules.toml)."""
