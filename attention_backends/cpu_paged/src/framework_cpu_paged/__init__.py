"""Attention over pages for CPUs, in C."""
