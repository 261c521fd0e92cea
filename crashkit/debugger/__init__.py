"""Tools that read stacks out of a core, behind one contract (`contract.py`): gdb, and PyStack where there is no gdb or no debug info.

`ask.py` says whom to ask for what. A package for each tool; only `gdb/` knows pygdbmi.
"""
