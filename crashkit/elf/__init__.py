"""ELF files and notes: the one reader."""
