"""The Rankdeck console: one cluster in a terminal."""
