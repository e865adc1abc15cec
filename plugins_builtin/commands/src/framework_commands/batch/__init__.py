"""Batches of requests from a file, in OpenAI's format."""
