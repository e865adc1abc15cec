"""Endpoints that speak Anthropic's API."""
