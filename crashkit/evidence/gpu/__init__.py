"""Reads GPU core dumps (.nvcudmp), with neither cuda-gdb nor a GPU."""
