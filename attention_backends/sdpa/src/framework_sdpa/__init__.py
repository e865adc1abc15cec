"""The reference attention backend: slow, obvious, right."""
