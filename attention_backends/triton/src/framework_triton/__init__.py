"""Attention over pages in Triton."""
