"""Pieces of a model as compiled code: what they compute, who compiles them, where code is kept."""
