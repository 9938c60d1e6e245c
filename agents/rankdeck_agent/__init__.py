"""The Rankdeck agent: reads a node and supervises ranks; Python 3.9 and up."""

__version__ = "0.1.0"
