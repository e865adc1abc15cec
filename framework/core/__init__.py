"""Scheduler, KV manager and the loop.  No device code: everything here runs anywhere."""
