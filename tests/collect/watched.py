"""How the program of a test knows that `crashkit run` has seen its children."""

WATCHED = """
import os

def watched():
    count, parent = 0, f"/proc/{os.getppid()}/fd"
    for name in os.listdir(parent):
        try: count += "pidfd" in os.readlink(f"{parent}/{name}")
        except FileNotFoundError: pass  # closed meanwhile
    return count
"""
"""Defines `watched()`: of how many children the parent of this process holds a descriptor."""
