"""The whole text that an exporter writes."""

from rankdeck.model.series import Choice


async def whole(exporter, *, openmetrics=False, choice=None) -> str:
    pieces = exporter.text(choice or Choice(), openmetrics=openmetrics)
    return "".join([piece async for piece in pieces])
