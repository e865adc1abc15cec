"""A client of servers that speak OpenAI's API."""
