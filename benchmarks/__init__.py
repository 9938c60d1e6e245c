"""Rankdeck beside its peers, in the same run: ratios, not absolute times."""
