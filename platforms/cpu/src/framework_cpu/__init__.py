"""The CPU platform: threads, memory and rankings of a plain processor."""
