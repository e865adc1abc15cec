"""Kernels of the torch runner.  A kernel's module imports torch in its methods only."""
