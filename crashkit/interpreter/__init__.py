"""CPython's memory, read without a debugger and without debug info: thread states, frames, code, values."""
