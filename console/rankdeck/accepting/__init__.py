"""Runs acceptance: real jobs in rounds, each result written to disk at once. `acceptance` says what to measure, and judges it."""
