"""gdb, driven through its machine interface: native stacks, and Python stacks by CPython's libpython.py. Alone imports pygdbmi."""
