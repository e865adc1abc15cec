"""The endpoints of OpenAI's API that ask a model for text."""
