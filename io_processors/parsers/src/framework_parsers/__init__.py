"""Finds tool calls and reasoning in what models write."""
