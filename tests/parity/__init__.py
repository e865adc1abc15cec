"""Tokens and log-probabilities equal transformers'."""
