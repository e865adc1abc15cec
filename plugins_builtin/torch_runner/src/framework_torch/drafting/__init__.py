"""Drafts: who proposes them, and how many are worth their time."""
