"""Executors: where the model runner runs."""
