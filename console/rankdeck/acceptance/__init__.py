"""Acceptance: is this cluster good, and if not, which node or link?
Pure; backends run what is planned.
"""
