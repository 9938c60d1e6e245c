"""Benchmarks of Rankdeck and of other tools in the same run: ratios, not absolute times."""
