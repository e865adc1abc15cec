"""Benchmarks of servers and of engines with a model."""
