"""What would go wrong with a job, found out before it starts."""
