"""Model sources: local folders and files, the hub, and the demo model."""
