"""Nodes and devices that are made up, for demos and tests; shown as SIMULATED everywhere.

It is no part of the agent that nodes get, unless the cluster file has `simulate:`.
"""
