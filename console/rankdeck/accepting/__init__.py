"""Runs acceptance: real jobs in rounds, each measurement on disk at once; what to measure and what it says is `acceptance`."""
