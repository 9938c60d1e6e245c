"""The devices of a node in order, and what is wrong with each."""

from rankdeck.state.node import NodeState
from rankdeck.ui.themes import LEVEL_ROLES, Glyphs
from rankdeck.ui.widgets.canvas import Run
from rankdeck.ui.widgets.plots import Scale, draw_columns
from rankdeck_agent.rules.levels import Level, Reason, by_cause


def device_names(node: NodeState, *metrics: str) -> list[str]:
    """Devices of these metrics, including those that could not be
    read, in natural order: 2 before 10.
    """
    found = {device for metric in metrics for device in node.devices(metric)}
    for key in node.failed:
        metric, _, device = key.partition("/")
        if device and metric in metrics:
            found.add(device)
    return sorted(found, key=lambda name: (len(name) if name.isdigit() else 0, name))


def reason_for(node: NodeState, device: str, kind: str) -> Reason | None:
    """The worst reason about this device, None if there is none; `kind` is
    the word that its checks begin with.
    """
    of = (f"{kind}.", "link.")
    causes = (cause for cause, _ in by_cause(node.health.reasons))
    return next((r for r in causes if r.device == device and r.check.startswith(of)), None)


def draw_gpu_bars(node: NodeState, width: int, glyphs: Glyphs) -> list[Run]:
    """How busy each GPU is, in at most `width` cells: a small bar in the colour of what is wrong
    with it, or the sign of its state if it is lost or cannot be read.

    If there are more GPUs than room, neighbours share a bar: it shows their mean, or the worst of
    them.
    """
    devices = device_names(node, "gpu.used", "gpu.lost")
    most = (width + 1) // 2  # with a gap after each but the last
    each = max(-(-len(devices) // most), 1)
    groups = [devices[at : at + each] for at in range(0, len(devices), each)]
    gap: Run = (" ", "text")
    runs = [run for some in groups for run in (_gpu_bar(node, some, glyphs), gap)]
    return runs[:-1]


def _gpu_bar(node: NodeState, devices: list[str], glyphs: Glyphs) -> Run:
    reasons = (reason_for(node, device, "gpu") for device in devices)
    level = max((reason.level for reason in reasons if reason), default=Level.OK)
    known = [value for one in devices if (value := node.value("gpu.used", one)) is not None]
    if any(node.value("gpu.lost", device) for device in devices):
        level, known = Level.BAD, []
    if not known:
        mark = glyphs.level(max(level, Level.UNKNOWN))
        return mark.glyph, mark.role
    ramp = "calm" if level is Level.OK else LEVEL_ROLES[level]
    (bar,) = draw_columns([sum(known) / len(known)], glyphs, Scale(100.0, ramp=ramp))
    return bar
