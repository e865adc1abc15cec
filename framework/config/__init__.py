"""Configuration: sections with defaults, and where each value comes from."""
