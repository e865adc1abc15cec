"""An LLM inference engine with a small core; everything else is a plugin."""
