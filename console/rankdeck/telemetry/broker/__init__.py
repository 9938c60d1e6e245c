"""A small MQTT 3.1.1 broker inside the console, for clusters that have none."""

from rankdeck.telemetry.broker.broker import PrivateBroker

__all__ = ["PrivateBroker"]
