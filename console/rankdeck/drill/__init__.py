"""Drills: harmless faults in jobs of their own, planted to see who is named and how soon."""
