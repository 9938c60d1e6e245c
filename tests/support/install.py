"""`PYTHON tests/support/install.py LAYER... [.]`: installs layers of the lock, and
with `.` Rankdeck in place, into that Python.

Installs exactly what `requirements/LAYER.txt` names, with `build` first, and checks hashes.
`WHEELS=FOLDER`: takes the files from a folder, without network. If it fails, it says why in one
sentence. Standard library only: it runs before anything is installed.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements"
FROM_SOURCE = ("argparse-manpage",)
"""Projects that publish no wheel; setuptools, of the layer `build`, builds them."""
LOG = Path(sys.prefix) / "pip.log"
_LIMIT = 1800
_OTHER_WAYS = "set HTTPS_PROXY if your site has a proxy, or take wheels from a folder: WHEELS=FOLDER (CONTRIBUTING.md)"
_MEANINGS: Sequence[tuple[str, str]] = (
    (r"No space left on device", "the disk is full"),
    (
        r"DO NOT MATCH THE HASHES",
        "a file differs from the one that the lock names (requirements/): do not use it; a proxy or an index of your site may have changed it",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        "the certificate of the package index is not trusted here: if your site's proxy has its own, name its file in PIP_CERT",
    ),
    (
        r"ProxyError|Cannot connect to proxy|Tunnel connection failed",
        "the proxy {proxy} does not let pip through to the package index: correct HTTPS_PROXY, or take wheels from a folder: WHEELS=FOLDER (CONTRIBUTING.md)",
    ),
    (
        r"NewConnectionError|ConnectTimeout|ReadTimeout|Read timed out|NameResolutionError|ConnectionResetError",
        f"no package index can be reached from here: {_OTHER_WAYS}",
    ),
    (
        r"No matching distribution found for (?P<project>\S+)",
        "{source} has no file of {project} that the lock names for this Python ({python})",
    ),
)
"""What pip printed -> what it means and what to do; the first row that is found counts."""


def explain(printed: str, env: Mapping[str, str]) -> str:
    """What pip's output means, in one sentence."""
    for pattern, meaning in _MEANINGS:
        if hit := re.search(pattern, printed):
            return meaning.format(**_circumstances(env), **hit.groupdict())
    errors = re.findall(r"^ERROR: (.+)", printed, re.MULTILINE)
    return errors[-1] if errors else f"pip failed: {printed.strip().splitlines()[-1]}"


def _circumstances(env: Mapping[str, str]) -> Mapping[str, str]:
    major, minor, *_ = sys.version_info
    proxy = env.get("HTTPS_PROXY") or env.get("https_proxy") or "of pip's configuration"
    return {
        "proxy": re.sub(r"//[^/@]*@", "//", proxy),  # without user and password
        "source": env.get("WHEELS") or "the package index",
        "python": f"{major}.{minor} on {os.uname().machine}",
    }


def commands(names: Sequence[str], env: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """The arguments of pip: what builds, what the layers name, and Rankdeck itself."""
    where = ("--no-index", f"--find-links={env['WHEELS']}") if env.get("WHEELS") else ()
    binary = ("--only-binary=:all:", *(f"--no-binary={one}" for one in FROM_SOURCE))
    exact = ("--require-hashes", "--no-build-isolation", *binary, *where)
    yield (*exact, f"--requirement={LOCK / 'build.txt'}")
    if layers := [f"--requirement={LOCK / name}.txt" for name in names if name != "."]:
        yield (*exact, *layers)
    if "." in names:
        yield ("--no-build-isolation", "--no-deps", "--no-index", f"--editable={ROOT}")


def install(words: Sequence[str]) -> str:
    """Run `pip install`; returns "", or all that it printed if it failed."""
    quiet = ("--quiet", "--disable-pip-version-check", "--retries=1", "--no-input")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *quiet, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_LIMIT,
        check=False,
    )
    return done.stdout if done.returncode else ""


def main(names: Sequence[str]) -> int:
    """Install; returns the exit code."""
    wheels = os.environ.get("WHEELS")
    if wheels and not Path(wheels).is_dir():
        print(f"make: WHEELS={wheels} is no folder", file=sys.stderr)
        return 1
    LOG.unlink(missing_ok=True)
    for words in commands(names, os.environ):
        if printed := install(words):
            LOG.write_text(printed)
            print(
                f"make: {explain(printed, os.environ)} (what pip printed: {LOG})", file=sys.stderr
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
