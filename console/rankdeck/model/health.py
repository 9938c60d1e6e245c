"""Health of a node, in the words that console and agent share."""

from rankdeck_agent.rules.levels import Health, Level, Reason, worst_of

__all__ = ["Health", "Level", "Reason", "worst_of"]
