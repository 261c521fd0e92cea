"""gdb, driven through its machine interface. The only package that knows pygdbmi."""
