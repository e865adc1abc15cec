"""The IO processors that come with the core: text, conversations, texts to be embedded."""
