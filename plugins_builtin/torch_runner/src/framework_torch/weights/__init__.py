"""Weight files, read by memory map."""
