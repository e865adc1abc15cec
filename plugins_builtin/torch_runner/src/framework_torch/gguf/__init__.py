"""GGUF files: their configuration in Transformers' words, and their tensors."""
