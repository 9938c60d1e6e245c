"""Finds out what would go wrong with a job before it starts."""
