"""Statistics of an engine: what is counted, and the loggers that the core brings."""
