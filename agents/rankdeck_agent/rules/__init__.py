"""Judges the health of a node: one table of thresholds and pure functions, shared
by the console and `rankdeck-agent health`.
"""
