"""The schedulers that may run a job: what keeps its events, and asks and tells the scheduler."""
