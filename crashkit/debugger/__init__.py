"""Tools that read stacks out of a core, behind one contract (`contract.py`): gdb, and PyStack where there is no gdb or no debug info.

`ask.py` decides which one reads what. A package for each tool; only `gdb/` knows pygdbmi.
"""
