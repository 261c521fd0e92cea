"""PyStack, run in a process of its own: Python stacks without debug info, and native stacks where gdb gives none."""
