"""Proposers of the next tokens: by what was said before, and by small models."""
