# pyright: basic
"""Runs on the nodes: prints one JSON line with the node's identity, what it has,
and whether it is in use. Writes nothing.
"""

import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

WATCH = 1.0
"""Seconds over which CPU use is measured."""
LIMIT = 10.0
_ADDRESS, _MTU, _MAC = 0x8915, 0x8921, 0x8927
"""SIOCGIFADDR, SIOCGIFMTU, SIOCGIFHWADDR."""


def text_of(path: str) -> str:
    """The contents of a small file, or ""."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""


def output_of(*argv: str) -> str:
    """The stdout of a program, or ""."""
    if not shutil.which(argv[0]):
        return ""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def field(text: str, key: str) -> str:
    """The value after `key:` or `key=` in a file of such lines."""
    for line in text.splitlines():
        name, _, value = line.replace("=", ":", 1).partition(":")
        if name.strip() == key:
            return value.strip().strip('"')
    return ""


def cpu_times() -> "tuple[int, int]":
    """(busy, all) ticks of all cores since boot."""
    numbers = [int(word) for word in text_of("/proc/stat").splitlines()[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def cpu_share() -> "float | None":
    """Share of all cores in use now, from 0 to 1; None if it is not known."""
    try:
        busy, total = cpu_times()
        time.sleep(WATCH)
        later, whole = cpu_times()
    except (IndexError, ValueError):
        return None
    return round((later - busy) / max(whole - total, 1), 3)


def asked_of(interface: str, request: int) -> bytes:
    """The kernel's answer about an interface of this network namespace (/sys
    may belong to another); b"" if none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return fcntl.ioctl(probe, request, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return b""


def networks() -> "dict[str, dict]":
    """Interface -> its addresses, rate in Gb/s (0: not known) and MTU."""
    found = {}
    for _, name in socket.if_nameindex()[:256]:
        address, mtu, mac = (asked_of(name, request) for request in (_ADDRESS, _MTU, _MAC))
        folder = f"/sys/class/net/{name}"
        # The rate of a virtual interface means nothing.
        rate = text_of(f"{folder}/speed") if Path(f"{folder}/device").exists() else ""
        found[name] = {
            "rate": int(rate) / 1000 if rate.isdigit() else 0,
            "mtu": str(struct.unpack("i", mtu[16:20])[0]) if mtu else "",
            "mac": mac[18:24].hex() if mac else "",
            "addresses": [socket.inet_ntoa(address[20:24])] if address else [],
        }
    return found


def rdma() -> "dict[str, dict]":
    """Port -> rate and firmware."""
    found = {}
    for folder in sorted(Path("/sys/class/infiniband").glob("*/ports/*"))[:64]:
        device = folder.parent.parent
        found[f"{device.name}/{folder.name}"] = {
            "rate": text_of(f"{folder}/rate"),
            "layer": text_of(f"{folder}/link_layer"),
            "state": text_of(f"{folder}/state"),
            "firmware": text_of(f"{device}/fw_ver"),
        }
    return found


HOT_GPU, HOT_CPU, MARGIN = 85.0, 85.0, 5.0
"""A GPU or CPU is too hot before a run from this temperature in °C on; a CPU
also within MARGIN of its critical one.
"""
PACKAGES = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
PI_HELD = (
    (0x1, "its supply is too weak"),
    (0x4, "its firmware slows it down"),
    (0x8, "its soft limit of temperature"),
)
"""Bits of `vcgencmd get_throttled` for the present state."""


def cpu_heat(chips: Path = Path("/sys/class/hwmon")) -> "list[str]":
    """The hottest sensor of the processors, if one is too hot."""
    found = []
    for chip in sorted(chips.glob("hwmon*")):
        if text_of(f"{chip}/name") not in PACKAGES:
            continue
        for sensor in sorted(chip.glob("temp*_input")):
            now = degrees(text_of(str(sensor)))
            critical = degrees(text_of(str(sensor).replace("_input", "_crit")))
            if now >= HOT_CPU or (critical > 0 and now >= critical - MARGIN):
                found.append((now, f"CPU at {now:.0f} °C"))
    return [max(found)[1]] if found else []


def degrees(word: str) -> float:
    """Degrees from thousandths of a degree; 0 if `word` is not a number."""
    return int(word) / 1000 if re.fullmatch("[0-9]{1,7}", word) else 0.0


def gpu_heat() -> "list[str]":
    """GPUs that are too hot or throttled by heat."""
    asked = "index,temperature.gpu,clocks_throttle_reasons.active"
    output = output_of("nvidia-smi", "--query-gpu=" + asked, "--format=csv,noheader,nounits")
    rows = [[word.strip() for word in line.split(",")] for line in output.splitlines()]
    return [
        f"GPU {row[0]} at {row[1]} °C"
        for row in rows
        if len(row) == 3 and (watts(row[1]) >= HOT_GPU or reasons_in(row[2]) & 0x60)
    ]


def pi_heat() -> "list[str]":
    """Why the firmware of a Raspberry Pi throttles now."""
    bits = output_of("vcgencmd", "get_throttled").partition("=")[2]
    return [text for bit, text in PI_HELD if reasons_in(bits) & bit]


def reasons_in(word: str) -> int:
    """The bits in a printed number, 0 for anything else."""
    return int(word, 16) if re.fullmatch("0x[0-9a-fA-F]{1,16}", word) else 0


HELD = (
    (0x80, "held by the power brake"),
    (0x40, "held by heat"),
    (0x08, "held by the hardware"),
    (0x20, "held by heat"),
    (0x02, "with clocks set by hand"),
)
"""Bits of the driver's reasons for low clocks that even an idle GPU shows, the worst first."""


def limits() -> str:
    """What slows which GPUs, even while they are idle: `held by the
    power brake: GPU 3`, or `none`.
    """
    asked = "index,power.limit,power.default_limit,clocks_throttle_reasons.active"
    output = output_of("nvidia-smi", "--query-gpu=" + asked, "--format=csv,noheader,nounits")
    found = {}
    rows = [[word.strip() for word in line.split(",")] for line in output.splitlines()]
    for index, limit, usual, reasons in (row for row in rows if len(row) == 4):
        words = [text for bit, text in HELD if reasons_in(reasons) & bit][:1]
        if watts(limit) < 0.99 * watts(usual):
            words.append(f"limited to {watts(limit):.0f} of {watts(usual):.0f} W")
        for word in words:
            found.setdefault(word, []).append(index)
    parts = ["{}: GPU {}".format(word, ", ".join(gpus)) for word, gpus in sorted(found.items())]
    return "; ".join(parts) or ("none" if rows else "")


def watts(word: str) -> float:
    """The number in `word`; 0 for `[N/A]`."""
    return float(word) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", word) else 0.0


def gpus() -> "tuple[dict, list]":
    """(facts about the GPUs, pids of processes that use them)."""
    asked = "name,driver_version,pcie.link.gen.current,pcie.link.width.current,power.limit"
    output = output_of("nvidia-smi", "--query-gpu=" + asked, "--format=csv,noheader")
    used = output_of("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    rows = [
        [word.strip() for word in line.split(",")]
        for line in output.splitlines()
        if line.count(",") >= 4
    ]
    kind = "nvidia" if rows else "amd" if Path("/dev/kfd").exists() else ""
    count = len(rows) or len(
        list(Path("/sys/class/drm").glob("renderD*/device/mem_info_vram_total"))
    )
    facts = {
        "kind": kind,
        "count": count if kind else 0,
        "name": rows[0][0] if rows else "",
        "driver": rows[0][1] if rows else text_of("/sys/module/amdgpu/version"),
        "pcie": "gen {} x{}".format(*min((row[2], row[3]) for row in rows)) if rows else "",
        "power": rows[0][4] if rows else "",
        "limits": limits() if rows else "",
    }
    return facts, [word for word in used.split() if word.isdigit()][:64]


def nccl(
    folders: "tuple[Path, ...]" = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local")),
) -> str:
    """Version of the system's NCCL library, from the name of its file; "" if there is none."""
    names = [
        path.name
        for folder in folders
        for place in ("", "*/", "*/lib*/")
        for path in folder.glob(place + "libnccl.so.*.*.*")
    ]
    return max(names, default="").partition(".so.")[2]


def module(name: str) -> bool:
    """Whether Python finds this module."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def main() -> None:
    """Print the line of JSON."""
    asked = json.loads(sys.argv[1])
    graphics, users_of_gpus = gpus()
    nets = networks()
    macs = sorted(one["mac"] for name, one in nets.items() if name != "lo" and one["mac"])
    answer = {
        "hostname": platform.node(),
        "machine": " ".join(
            [
                text_of("/proc/sys/kernel/random/boot_id"),
                str(Path("/proc/self/ns/net").readlink()),
                *macs,
            ]
        ),
        "boot": text_of("/proc/sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "system": field(text_of("/etc/os-release"), "PRETTY_NAME"),
        "cpu": field(text_of("/proc/cpuinfo"), "model name") or text_of("/proc/device-tree/model"),
        "cores": os.cpu_count(),
        "memory": field(text_of("/proc/meminfo"), "MemTotal").partition(" ")[0],
        "governor": text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "mpi": output_of(asked["mpirun"], "--version").partition("\n")[0],
        "nccl": nccl(),
        "python": platform.python_version(),
        "networks": nets,
        "rdma": rdma(),
        "gpu": graphics,
        "gpu_pids": users_of_gpus,
        "users": sorted(
            {line.split()[0] for line in output_of("who").splitlines() if line.split()}
        ),
        "programs": [name for name in asked["programs"] if shutil.which(name)],
        "modules": [name for name in asked["modules"] if module(name)],
        "busy": cpu_share(),
        "heat": [*cpu_heat(), *gpu_heat(), *pi_heat()],
        "at": time.time(),
    }
    sys.stdout.write("#rankdeck-facts " + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
