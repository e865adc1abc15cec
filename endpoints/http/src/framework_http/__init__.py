"""An HTTP server for the engine, and endpoints that speak OpenAI's API."""
