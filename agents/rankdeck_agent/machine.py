"""What a machine is, in a few strings: kernel, system, boot, name."""

import platform
import re

from rankdeck_agent.files import Tree, clean

_BOOT = re.compile(rb"^btime (\d{1,12})$", re.MULTILINE)


def machine(tree: Tree) -> dict[str, str]:
    """Kernel, system and boot of the machine under the tree; of this one also architecture and Python."""
    found = {"os": _system(tree)}
    if tree.root == "/":
        kernel = platform.release()
        found |= {"arch": platform.machine(), "python": platform.python_version()}
    else:
        kernel = tree.maybe("proc/sys/kernel/osrelease") or ""
    found["kernel"] = kernel
    found["boot.at"] = _booted(tree)
    return {key: clean(value) for key, value in found.items() if value}


def name(tree: Tree) -> str:
    """The name that the machine under the tree has for itself; "" where it does not tell."""
    if tree.root == "/":
        return clean(platform.node().partition(".")[0])
    return clean((tree.maybe("proc/sys/kernel/hostname") or "").partition(".")[0])


def _booted(tree: Tree) -> str:
    """Epoch seconds by the machine's own clock."""
    try:
        found = _BOOT.search(tree.read("proc/stat"))
    except OSError:
        found = None
    return found[1].decode() if found else ""


def _system(tree: Tree) -> str:
    try:
        text = tree.read("etc/os-release").decode("utf-8", "replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return clean(value.strip("\"'"))
    return platform.system() if tree.root == "/" else ""
