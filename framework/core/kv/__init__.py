"""Paged cache: pages, prefix hashes, groups of layers, and the manager over them."""
