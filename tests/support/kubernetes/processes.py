"""Containers as real processes: namespaces, mounts, addresses and
names of their own on one bridge.
"""

import asyncio
import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import asyncssh

from tests.support.kubernetes.exec import start_beside
from tests.support.kubernetes.kinds import CONFIG_MAP, POD, SECRET, SERVICE
from tests.support.kubernetes.kubelet import Exit, start_error
from tests.support.kubernetes.logs import ContainerLog
from tests.support.kubernetes.store import Store, is_true, labels
from tests.support.processes import children
from tests.support.programs import UNPACKED

Json = dict
REPOSITORY = Path(__file__).resolve().parents[3]
_SCRIPTS = Path(__file__).parent / "sandbox"
_UID = 3000
"""The user outside that is root in a container: an ordinary one, as in the labs."""
_KEPT = ((CONFIG_MAP, "configMap", "name"), (SECRET, "secret", "secretName"))
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_UP_LIMIT = 60.0
IMAGE_PATH = ":".join(
    [str(Path(sys.prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
)


class Processes:
    """Runs containers below one folder; needs the programs and namespaces of the labs."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._net: subprocess.Popen | None = None
        self._hosts: dict[str, str] = {}

    def up(self) -> None:
        """Create the network; raises RuntimeError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _lay_image(self._folder / "image")
        mark = self._folder / "net-is-up"
        with (self._folder / "net.log").open("wb") as log:
            self._net = subprocess.Popen(
                [*_WITH_US, "unshare", "-U", "-r", "-n", "-m", str(_SCRIPTS / "net.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "READY": str(mark), "PATH": f"{os.environ['PATH']}:/sbin:/usr/sbin"},
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _UP_LIMIT
        while not mark.exists():
            if time.monotonic() > deadline or self._net.poll() is not None:
                raise RuntimeError((self._folder / "net.log").read_text())
            time.sleep(0.01)

    def down(self) -> None:
        """Remove the network; the kubelet has ended the containers before."""
        if self._net is not None:
            self._net.kill()
            self._net.wait(60)

    # ---- volumes and names ------------------------------------------------------------

    def missing(self, pod: Json) -> str:
        """The ConfigMap or Secret that a pod waits for."""
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes", []):
            for kind, part, key in _KEPT:
                wanted = volume.get(part, {"optional": True})
                there = wanted.get("optional") or self._store.get(kind, namespace, wanted[key])
                if not there:
                    what = f'{kind.name.lower()} "{wanted[key]}" not found'
                    return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {what}'
        return ""

    def refresh(self) -> None:
        """Write the hosts file of each namespace, in place, so that running pods see it."""
        found: dict[str, list[str]] = {}
        for pod in self._store.all(POD):
            found.setdefault(pod["metadata"]["namespace"], []).extend(self._names(pod))
        for namespace, lines in found.items():
            text = "127.0.0.1 localhost\n" + "".join(lines)
            if self._hosts.get(namespace) != text:
                self._hosts[namespace] = text
                (self._folder / f"hosts.{namespace}").write_text(text)

    def _names(self, pod: Json) -> Iterator[str]:
        """Lines of a hosts file: the pod's own name, and what a headless Service gives it."""
        spec, meta = pod["spec"], pod["metadata"]
        address, host = pod["status"].get("podIP"), _host(pod)
        if not address:
            return
        yield f"{address} {host}\n"
        service = self._store.get(SERVICE, meta["namespace"], spec.get("subdomain", ""))
        if service is None or pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        selector = service["spec"].get("selector") or {}
        early = service["spec"].get("publishNotReadyAddresses") or is_true(pod, "Ready")
        if early and all(labels(pod).get(k) == v for k, v in selector.items()):
            name = f"{host}.{spec['subdomain']}"
            full = f"{name}.{meta['namespace']}.svc"
            yield f"{address} {full}.cluster.local {full} {name}.{meta['namespace']} {name}\n"

    # ---- containers -------------------------------------------------------------------

    async def start(
        self, pod: Json, container: Json, address: str, log: ContainerLog
    ) -> "_Process | _NotStarted":
        """Start a container; `log` gets its lines as they arrive."""
        variables = _variables(pod, container, address)
        words = (*container.get("command", []), *container.get("args", []))
        command = [expanded(word, variables) for word in words]
        if not command:
            return _NotStarted(Exit(128, "StartError", "no command specified"))
        folder = self._folder / f"{pod['metadata']['uid']}.{container['name']}"
        folder.mkdir(exist_ok=True)
        (folder / "start-error").unlink(missing_ok=True)
        self._hosts_file(pod["metadata"]["namespace"])
        lines = [*self._image_mounts(pod), *self._mounts(pod, container)]
        (folder / "mounts").write_text("".join(f"{a}\t{b}\t{c}\n" for a, b, c in lines))
        given = [f"{name}={value}" for name, value in variables.items()]
        enter = ["nsenter", "-t", str(self._net_pid()), "-U", "--preserve-credentials", "-n", "-m"]
        process = await asyncio.create_subprocess_exec(
            *enter, *_WITH_US, str(_SCRIPTS / "start.sh"), *given, *command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
            env=self._settings(pod, container, address, folder, command[0]),
        )  # fmt: skip
        return _Process(process, log, folder, given)

    def _net_pid(self) -> int:
        assert self._net is not None
        return self._net.pid

    def _settings(self, pod: Json, container: Json, address: str, folder: Path, command: str):
        third, fourth = address.split(".")[2:]
        keep = {str(REPOSITORY), str(Path(sys.prefix).resolve()), sys.base_prefix, sys.prefix}
        keep |= {str(UNPACKED)} if UNPACKED.is_dir() else set()
        return {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "ADDRESS": address,
            "NUMBER": str(int(third) * 250 + int(fourth)),
            "HOST_NAME": _host(pod),
            "FOLDER": str(folder),
            "KEEP": " ".join(sorted(keep)),
            "WORKDIR": container.get("workingDir") or "/",
            "POD_UID": str(_UID),
            "COMMAND": command,
            "IMAGE_PATH": IMAGE_PATH,
        }

    def _hosts_file(self, namespace: str) -> Path:
        file = self._folder / f"hosts.{namespace}"
        if not file.exists():
            self.refresh()
            file.touch()
        return file

    def _image_mounts(self, pod: Json) -> Iterator[tuple[str, str, str]]:
        image = self._folder / "image"
        for name in ("passwd", "group", "resolv.conf", "ssh"):
            yield str(image / name), f"/etc/{name}", "rw"
        yield str(self._hosts_file(pod["metadata"]["namespace"])), "/etc/hosts", "rw"

    def _mounts(self, pod: Json, container: Json) -> Iterator[tuple[str, str, str]]:
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            source = self._source(pod, volumes[mount["name"]])
            if source is None:
                continue
            if mount.get("subPath"):
                source = f"{source}/{mount['subPath']}"
                if "configMap" not in volumes[mount["name"]]:
                    Path(source).mkdir(parents=True, exist_ok=True)  # as the kubelet does
            yield source, mount["mountPath"], "ro" if mount.get("readOnly") else "rw"

    def _source(self, pod: Json, volume: Json) -> str | None:
        """The folder or file of a volume on this machine."""
        home = self._folder / pod["metadata"]["uid"] / volume["name"]
        namespace = pod["metadata"]["namespace"]
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            return str(path)
        if "persistentVolumeClaim" in volume:
            claim = (
                self._folder / "claims" / namespace / volume["persistentVolumeClaim"]["claimName"]
            )
            claim.mkdir(parents=True, exist_ok=True)
            return str(claim)
        if "emptyDir" in volume and volume["emptyDir"].get("medium") == "Memory":
            return "tmpfs"
        if "configMap" in volume or "secret" in volume:
            if not home.exists():
                self._lay(volume, namespace, home)
            return str(home)
        home.mkdir(parents=True, exist_ok=True)
        return str(home)

    def _lay(self, volume: Json, namespace: str, home: Path) -> None:
        """Write the keys of a ConfigMap or a Secret as files."""
        secret = "secret" in volume
        wanted = volume["secret"] if secret else volume["configMap"]
        kind, name = (SECRET, wanted["secretName"]) if secret else (CONFIG_MAP, wanted["name"])
        found = self._store.get(kind, namespace, name) or {}
        data = _contents(found, secret=secret)
        home.mkdir(parents=True)
        items = wanted.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            file = home / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data[item["key"]])
            file.chmod(item.get("mode", wanted.get("defaultMode", 0o644)))


def claim_folder(folder: Path, namespace: str, name: str) -> Path:
    """The folder of a volume claim on this machine."""
    return folder / "claims" / namespace / name


def _contents(found: Json, *, secret: bool) -> dict[str, bytes]:
    data = {k: v.encode() for k, v in (found.get("stringData") or {}).items()}
    for key, value in (found.get("binaryData") or {}).items():
        data[key] = base64.b64decode(value)
    for key, value in (found.get("data") or {}).items():
        data[key] = base64.b64decode(value) if secret else value.encode()
    return data


def _host(pod: Json) -> str:
    return pod["spec"].get("hostname") or pod["metadata"]["name"][:63]


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` and `$$` as Kubernetes reads them in commands and values
    (third_party/forked/golang/expansion).
    """

    def one(found: "re.Match[str]") -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def _variables(pod: Json, container: Json, address: str) -> dict[str, str]:
    """Variables of a container: those of the image, then those of
    the pod; each may use earlier ones.
    """
    found = {
        "PATH": IMAGE_PATH,
        "HOME": "/root",
        "HOSTNAME": _host(pod),
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = expanded(entry.get("value", ""), found)
        found[entry["name"]] = _field(pod, source, address) if source else value
    return found


def _field(pod: Json, path: str, address: str) -> str:
    """The value of a field path in the downward API."""
    meta = pod["metadata"]
    for part in ("labels", "annotations"):
        if path.startswith(f"metadata.{part}['"):
            return (meta.get(part) or {}).get(path.split("'")[1], "")
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": address,
        "status.hostIP": "127.0.0.1",
    }
    return known.get(path, "")


def _lay_image(image: Path) -> None:
    """Write what an image for MPI has in /etc: users, and configuration for ssh
    without questions in both directions.
    """
    (image / "ssh").mkdir(parents=True, exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    (image / "ssh/host_key").touch(mode=0o600)
    (image / "ssh/host_key").write_bytes(key.export_private_key())
    for name, text in {
        "passwd": f"root:x:{_UID}:{_UID}:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
        "group": f"root:x:{_UID}:\n",
        "resolv.conf": "",
        "ssh/ssh_config": "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
        "ssh/sshd_config": "Port 22\nHostKey /etc/ssh/host_key\nPidFile none\nUsePAM no\nUseDNS no\n"
        "StrictModes no\nPasswordAuthentication no\nMaxStartups 100:30:200\n"
        f"SetEnv PATH={IMAGE_PATH}\n",
    }.items():  # fmt: skip
        (image / name).write_text(text)


class _NotStarted:
    """A container that the runtime refused to start."""

    def __init__(self, how: Exit) -> None:
        self._how = how

    async def wait(self) -> Exit:
        return self._how

    def terminate(self) -> None:
        """Nothing runs."""

    def kill(self) -> None:
        """Nothing runs."""


class _Process:
    """A container whose command is process 1 of its own namespace."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        log: ContainerLog,
        folder: Path,
        variables: Sequence[str],
    ) -> None:
        self._process, self._log, self._folder = process, log, folder
        self._variables = variables

    async def wait(self) -> Exit:
        """Copy its output until it ends."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            await asyncio.gather(_copy(self._process.stdout, self._log), _copy(self._process.stderr, self._log))  # fmt: skip
            code = await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise
        refused = self._folder / "start-error"
        if refused.exists():
            return start_error(refused.read_text())
        code = 128 - code if code < 0 else code
        return Exit(code, "Completed" if code == 0 else "Error")

    async def start_beside(self, command: Sequence[str]) -> asyncio.subprocess.Process:
        """As `kubectl exec` does."""
        return await start_beside(self._process, _UID, self._variables, command)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if not children(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _signal(self, number: int) -> None:
        """Signal process 1, which is the child of `unshare`; when it
        ends, the kernel kills the rest.
        """
        for pid in children(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


async def _copy(stream: asyncio.StreamReader, log: ContainerLog) -> None:
    rest = b""
    while chunk := await stream.read(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            log.add(*lines)
    if rest:
        log.add(rest)
