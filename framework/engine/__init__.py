"""The front end: requests in, text out."""
