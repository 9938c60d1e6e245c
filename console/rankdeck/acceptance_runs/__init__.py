"""Runs acceptance: real jobs in rounds; each result is saved at once.

`acceptance` decides what to measure, and judges it.
"""
