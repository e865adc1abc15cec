"""LoRA adapters: which are in memory and in a step, and how PEFT stores them."""
