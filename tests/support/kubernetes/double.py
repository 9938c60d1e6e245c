"""A Kubernetes cluster in this process: an API server on loopback,
controllers, nodes, real or pretended containers.
"""

import asyncio
import base64
import concurrent.futures
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from rankdeck.values import replace
from tests.support.certificates import Authority
from tests.support.kubernetes import defaults, garbage, scheduler
from tests.support.kubernetes.access import ADMIN, Access
from tests.support.kubernetes.admission import Hook
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.http import CutError, Reply, Request, Server
from tests.support.kubernetes.jobs import Jobs
from tests.support.kubernetes.kinds import ADDED, NAMESPACE, NODE, POD, Kind
from tests.support.kubernetes.kubelet import Exit, Kubelet
from tests.support.kubernetes.mpijobs import MpiJobs
from tests.support.kubernetes.pretend import Script, Scripts
from tests.support.kubernetes.processes import Processes, claim_folder
from tests.support.kubernetes.store import Store

Json = dict[str, Any]
TOKEN = "admin-token"
_ROUND = 0.03
"""Seconds between rounds of the controllers where something is under way."""
_IDLE = 0.1
_LIMIT = 30.0


class Double:
    """One cluster. Its state belongs to a thread of its own; every
    method may be called from a test.

    Files go below `folder`; `processes=False` has pods that only pretend (see `script`). Use it as
    a context, or call `up` and `down`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Sequence[Json] = (),
        processes: bool = True,
        kinds: Sequence[str] = ("mpijobs",),
        namespaces: Sequence[str] = ("default", "rec"),
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._nodes = nodes or [scheduler.node(f"gpu-{n}") for n in range(4)]
        self._namespaces = namespaces
        self._kinds: tuple[Kind, ...] = tuple(ADDED[name] for name in kinds)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kubernetes", daemon=True
        )
        self.store, self.logs, self.access = Store(), {}, Access()
        self.access.add(ADMIN, TOKEN)
        self.api = Api(self.store, self.access, self._kinds, self.logs)
        self._processes = Processes(self.store, folder / "pods") if processes else None
        self._scripts = Scripts()
        self.kubelet = Kubelet(self.store, self.logs, self._processes or self._scripts)
        self.api.start_beside = self.kubelet.start_beside if processes else None
        admit = self.api.admission.admit
        self.jobs, self.mpijobs = Jobs(self.store, admit), MpiJobs(self.store, admit)
        self._authority = Authority(folder, "kube-ca")
        self.under = ""
        """The path below which it answers, as behind Rancher: `/k8s/clusters/c-1`."""
        self._server = Server(self._handle, self._context())
        self._round: concurrent.futures.Future | None = None

    async def _handle(self, request: Request, reply: Reply) -> None:
        if not request.path.startswith(f"{self.under}/"):
            raise CutError
        await self.api.handle(replace(request, path=request.path[len(self.under) :]), reply)

    def _context(self) -> ssl.SSLContext:
        made = self._authority.server("kube-api")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.cert, made.key)
        return context

    # ---- up and down ------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Start everything; raises RuntimeError where pods cannot be run here."""
        if self._processes is not None:
            self._processes.up()
        self._thread.start()
        self.do(self._prepare)
        self._wait(self._server.start())
        self._round = asyncio.run_coroutine_threadsafe(self._control(), self._loop)

    def _prepare(self) -> None:
        for name in self._namespaces:
            self.store.create(NAMESPACE, namespace(name))
        for node in self._nodes:
            self.store.create(NODE, node)

    def down(self) -> None:
        """End every container, then the rest; raises what broke the
        controllers, if anything did.
        """
        assert self._round is not None
        broken = self._round.exception() if self._round.done() else None
        self._round.cancel()
        self._wait(self._close())
        if self._processes is not None:
            self._processes.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT)
        self._loop.close()
        if broken is not None:
            raise broken

    async def _close(self) -> None:
        self.kubelet.close()
        await self._server.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    async def _control(self) -> None:
        """Run all controllers, after each change and at intervals."""
        while True:
            version = self.store.version
            garbage.reconcile(self.store)
            self.jobs.reconcile()
            self.mpijobs.reconcile()
            scheduler.reconcile(self.store)
            self.kubelet.reconcile()
            await asyncio.sleep(_ROUND if version != self.store.version else _IDLE)

    # ---- from a test ------------------------------------------------------------------

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread that owns the state; returns its result."""

        async def call() -> Any:
            return function(*arguments)

        return self._wait(call())

    def _wait(self, coroutine) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_LIMIT)

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._server.port}{self.under}"

    def kubeconfig(
        self, name: str = "config", token: str = TOKEN, namespace: str = "default"
    ) -> Path:
        """Write a configuration for kubectl: context `double`."""
        authority = base64.b64encode(self._authority.file.read_bytes()).decode()
        server = {"server": self.address, "certificate-authority-data": authority}
        context = {"cluster": "double", "user": "tester", "namespace": namespace}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": server}],
            "users": [{"name": "tester", "user": {"token": token}}],
            "contexts": [{"name": "double", "context": context}],
            "current-context": "double",
        }
        file = self.folder / name
        file.write_text(yaml.safe_dump(content))
        file.chmod(0o600)
        return file

    def user(self, name: str, roles: Sequence[Json], namespace: str = "default") -> Path:
        """A user whom Roles and ClusterRoles (as YAML files have
        them) give rights; its kubeconfig.
        """
        self.do(self.access.add, name, f"{name}-token", roles)
        return self.kubeconfig(f"config.{name}", f"{name}-token", namespace)

    def expire(self, token: str = TOKEN) -> None:
        """Make a token invalid."""
        self.do(self.access.expire, token)

    def all(self, plural: str, namespace: str = "") -> list[Json]:
        """Objects as they are now: `double.all("pods")`."""
        return self.do(self.store.all, self._kind(plural), namespace)

    def create(self, plural: str, made: Json) -> Json:
        """Add an object directly, without defaults or checks."""
        return self.do(self.store.create, self._kind(plural), made)

    def post(self, plural: str, made: Json, namespace: str = "default") -> Json:
        """Create an object as a user would: with the server's defaults."""
        kind = self._kind(plural)
        return self.create(plural, defaults.completed(kind, made, namespace))

    def change(
        self, plural: str, name: str, how: Callable[[Json], object], namespace: str = "default"
    ) -> Json:
        """Change an object by a function on a copy of it."""
        kind = self._kind(plural)
        place = namespace if kind.namespaced else ""
        return self.do(lambda: self.store.change(kind, self.store.need(kind, place, name), how))

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object in the foreground, as another user."""
        kind = self._kind(plural)
        place = namespace if kind.namespaced else ""
        finalizer = "kubernetes" if kind is NAMESPACE else "foregroundDeletion"

        def end() -> None:
            found = self.store.need(kind, place, name)
            if kind is POD:
                garbage.end(self.store, POD, found)
            else:
                self.store.delete(kind, found, finalizer)

        self.do(end)

    def _kind(self, plural: str) -> Kind:
        return next(kind for kind in self.api.kinds if kind.plural == plural)

    def script(self, pattern: str, script: Script) -> None:
        """Set what pretended pods do, by a pattern of their names."""
        self.do(self._scripts.use, pattern, script)

    def hook(self, name: str, how: Hook) -> None:
        """Put a webhook of the site before all new objects."""
        self.do(self.api.admission.hooks.__setitem__, name, how)

    def claim(self, name: str, namespace: str = "default") -> Path:
        """Make a volume claim; the folder that it is on this machine."""
        self.create("persistentvolumeclaims", {"metadata": {"name": name, "namespace": namespace}})
        folder = claim_folder(self.folder / "pods", namespace, name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def be_version(self, minor: int) -> None:
        """Answer and label as Kubernetes 1.x did."""
        found = {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0-double"}
        self.jobs.minor = minor
        self.answer("GET", "/version", 200, found)

    def stick_logs(self) -> None:
        """Every follow that is open falls silent without ending, as with
        kubelets before 1.30 when they rotate a log.
        """

        def stick() -> None:
            self.api.faults.log_sticks += 1
            self._wake_logs()

        self.do(stick)

    # ---- faults -----------------------------------------------------------------------

    def restart_server(self) -> None:
        """Restart the API server on its port: all connections break, state is kept."""
        self.stop_server()
        self.start_server()

    def stop_server(self) -> None:
        self._wait(self._server.stop())

    def start_server(self) -> None:
        self._wait(self._server.start())

    def cut_watches(self) -> None:
        """Break every watch connection."""

        def cut() -> None:
            self.api.faults.watch_cuts += 1
            self.store.wake()

        self.do(cut)

    def forget_history(self) -> None:
        """Watches that are not up to date get 410 at their next
        request; `cut_watches` causes one.
        """
        self.do(self.store.forget)

    def restore_backup(self) -> None:
        """Restore a backup: versions continue from an older one, and
        watches at newer versions are silent.
        """
        self.do(self.store.restore)

    def cut_logs(self) -> None:
        """Break every log stream that is followed."""

        def cut() -> None:
            self.api.faults.log_cuts += 1
            self._wake_logs()

        self.do(cut)

    def _wake_logs(self) -> None:
        for kept in self.logs.values():
            for runs in kept.runs.values():
                for log in runs:
                    log.wake()

    def rotate_logs(self) -> None:
        """Rotate every log: a follow ends, as the kubelet's did."""
        self.do(
            lambda: [r[-1].rotate() for kept in self.logs.values() for r in kept.runs.values() if r]
        )

    def slow(self, seconds: float) -> None:
        """Delay every answer by so many seconds."""
        self.api.faults.delay = seconds

    def answer(self, method: str, path: str, code: int, body: object) -> None:
        """Give this answer to requests that match (patterns of the whole method and path)."""
        self.do(self.api.faults.answers.append, (method, path, lambda: (code, body)))

    def pods_late(self, seconds: float) -> None:
        """Create pods so many seconds after their Job."""
        self.jobs.late = seconds

    def start_late(self, seconds: Callable[[Json], float] | float) -> None:
        """Start containers so many seconds after their pod has a node."""
        self.kubelet.start_delay = seconds if callable(seconds) else lambda pod: seconds

    def clock_ahead(self, seconds: Callable[[Json], float]) -> None:
        """Set how many seconds the clock of a pod's node, and the times in its log, are ahead."""
        self.kubelet.clock_ahead = seconds

    def bad_image(self, pattern: str, reason: str = "manifest unknown") -> None:
        """Images that match cannot be pulled."""
        self.do(self.kubelet.bad_images.__setitem__, pattern, reason)

    def shellless(self, pattern: str) -> None:
        """Images that match have no sh."""
        self.kubelet.shellless = pattern

    def restart_container(self, pod: str, namespace: str = "default") -> None:
        """End a container by a signal; it restarts in its pod."""
        self._on_pod(
            pod, namespace, lambda p: self.kubelet.end_container(p, Exit(137, "Error"), again=True)
        )

    def oom(self, pod: str, namespace: str = "default") -> None:
        """End a container as the kernel's out-of-memory killer does."""
        self._on_pod(
            pod, namespace, lambda p: self.kubelet.end_container(p, Exit(137, "OOMKilled"))
        )

    def evict(self, pod: str, namespace: str = "default") -> None:
        message = (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Mi."
        )
        self._on_pod(pod, namespace, lambda p: self.kubelet.evict(p, message))

    def _on_pod(self, name: str, namespace: str, act: Callable[[Json], object]) -> None:
        self.do(lambda: act(self.store.need(POD, namespace, name)))

    def lose_node(self, name: str) -> None:
        """A node falls silent."""
        self.do(self.kubelet.lose, name)

    def find_node(self, name: str) -> None:
        self.do(self.kubelet.find, name)


def namespace(name: str) -> Json:
    """A namespace object."""
    own = {"kubernetes.io/metadata.name": name}
    return {"metadata": {"name": name, "labels": own}, "spec": {}, "status": {"phase": "Active"}}
