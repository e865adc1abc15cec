"""From hidden states to one vector of a prompt."""
