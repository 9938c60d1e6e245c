"""A Kubernetes cluster to try Rankdeck on: the double, or a real one that the environment names.

RANKDECK_TEST_KUBECONFIG names the configuration of a real cluster; then also
RANKDECK_TEST_KUBECONTEXT, RANKDECK_TEST_NAMESPACE (default: `default`), RANKDECK_TEST_IMAGE (has
sh; default busybox), RANKDECK_TEST_MPI_IMAGE, RANKDECK_TEST_TORCH_IMAGE and
RANKDECK_TEST_KUBELET=pretend, where nodes only pretend: their pods say `[rank N] step …` lines HZ
times a second for RUN_S seconds, and FAIL_INDEX fails with status 3 at FAIL_AT seconds. With the
last one alone the double pretends so, too.
"""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.commands import COMMANDS
from tests.support.kubernetes.double import Double
from tests.support.kubernetes.roles import smallest_role
from tests.support.polling import seen_until

ROOT = Path(__file__).resolve().parents[3]
OUR_LABEL = "app.kubernetes.io/managed-by=rankdeck"
LIMIT = 120.0
_KINDS = "jobs,pods,services,configmaps,secrets"


@dataclass(frozen=True)
class Endpoints:
    """Which cluster; `double` is None for a real one."""

    kubeconfig: Path
    """Configuration of the user who runs Rankdeck."""
    context: str = ""
    namespace: str = "default"
    images: Mapping[str, str] = field(default_factory=dict)
    double: Double | None = None
    pretends: bool = False
    """Whether pods only pretend: no container really runs."""
    admin: Path | None = None
    """Configuration of the user who checks the cluster and acts as other users; None: the same."""


def doubled(double: Double, *, pretends: bool = False) -> Endpoints:
    """A double, on which Rankdeck has the smallest Role of docs/kubernetes.md."""
    images = dict.fromkeys(("plain", "mpi", "torchrun"), "double/image")
    op = double.user("operator", [smallest_role()])
    admin = double.kubeconfig()
    return Endpoints(op, "double", images=images, double=double, pretends=pretends, admin=admin)


def real() -> Endpoints | None:
    """The real cluster that the environment names."""
    told = os.environ
    if not told.get("RANKDECK_TEST_KUBECONFIG"):
        return None
    images = {
        "plain": told.get("RANKDECK_TEST_IMAGE", "busybox:1.36"),
        "mpi": told.get("RANKDECK_TEST_MPI_IMAGE", ""),
        "torchrun": told.get("RANKDECK_TEST_TORCH_IMAGE", ""),
    }
    return Endpoints(
        Path(told["RANKDECK_TEST_KUBECONFIG"]).resolve(),
        told.get("RANKDECK_TEST_KUBECONTEXT", ""),
        told.get("RANKDECK_TEST_NAMESPACE", "default"),
        images,
        pretends=pretended(),
    )


def pretended() -> bool:
    return os.environ.get("RANKDECK_TEST_KUBELET") == "pretend"


class Site:
    """Rankdeck's own command line with folders of its own, and kubectl, on one cluster."""

    def __init__(self, folder: Path, where: Endpoints, kubectl: Path) -> None:
        self.folder, self.where, self.kubectl_program = folder, where, kubectl
        folder.mkdir(exist_ok=True)
        self.job_number = 0
        options = {"namespace": where.namespace}
        if where.context:
            options["context"] = where.context
        self.cluster({"kubernetes": options})

    def cluster(self, more: Mapping[str, object]) -> None:
        """Write the cluster file."""
        nodes = [{"name": "w[1-4]", "slots": 2, "gpus": 0}]
        content = {"cluster": "k8s", "backend": "kubernetes", "nodes": nodes, **more}
        (self.folder / "k8s.yaml").write_text(yaml.safe_dump(content))

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the user's own is read or written."""
        home = self.folder / "home"
        (home / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
        (home / "run").chmod(0o700)
        return {
            "PYTHONPATH": f"{ROOT}/console:{ROOT}/agents",
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": f"{self.kubectl_program.parent}:{os.defpath}",
            "KUBECONFIG": str(self.where.kubeconfig),
        }

    def kubectl(self, *args: str, code: int | None = 0) -> str:
        """kubectl in the cluster's namespace."""
        context = ["--context", self.where.context] if self.where.context else []
        done = subprocess.run(
            [str(self.kubectl_program), *context, "-n", self.where.namespace, *args],
            env={**self.environment, "KUBECONFIG": str(self.where.admin or self.where.kubeconfig)},
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stderr[-800:]
        return done.stdout

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start Rankdeck."""
        return subprocess.Popen(
            [sys.executable, "-m", "rankdeck", "-c", str(self.folder / "k8s.yaml"), *args],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rankdeck(self, *args: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
        """Run Rankdeck to its end."""
        argv = ("-c", str(self.folder / "k8s.yaml"), *args)
        try:
            return COMMANDS.run(argv, self.environment, limit, self.folder)
        except subprocess.TimeoutExpired as late:
            said = f"{late.stdout[-800:]} {late.stderr[-800:]}"
            raise AssertionError(f"{args} took longer than {limit} s: {said}") from None

    def job_file(self, name: str, launch: str = "plain", **content: object) -> str:
        """Write a job file; the image is the one of its launcher."""
        image = self.where.images.get(launch) or self.where.images["plain"]
        whole = {"job": name, "launch": launch, "nodes": 2, "grace": 2}
        whole |= {"container": {"image": image}, **content}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(whole))
        return file.name

    def steps(
        self,
        name: str,
        *,
        run: float = 2,
        hz: float = 5,
        fail: tuple[int, float] | None = None,
        **more: object,
    ) -> str:
        """A job whose pods say steps, on nodes that run containers and on those that pretend."""
        values = {"RUN_S": str(run), "HZ": str(hz)}
        if fail is not None:
            values |= {"FAIL_INDEX": str(fail[0]), "FAIL_AT": str(fail[1])}
        command = ["sh", "-c", STEPS]
        return self.job_file(name, env=values, command=command, ranks_per_node=1, **more)

    def detached(self, file: str, *args: str) -> str:
        """Start a job and come back; its id."""
        done = self.rankdeck("--json", "run", "--no-preflight", "--detach", *args, file)
        assert done.returncode == 0, done.stderr[-1500:]
        return json.loads(done.stdout)["job"]

    def job(self, job: str) -> dict[str, Any]:
        """What `jobs --json` says of a job."""
        done = self.rankdeck("--json", "jobs", "--all")
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return next(one for one in found if one["job"] == job)

    def newest(self) -> str:
        """The id of the job that was started last."""
        done = self.rankdeck("--json", "jobs", "--all")
        return json.loads(done.stdout.splitlines()[0])["job"]

    def until(self, job: str, true: Callable[[dict], object], limit: float = LIMIT) -> dict:
        """Wait for something that `jobs --json` says."""
        return seen_until(lambda: self.job(job), true, limit)

    def lines(self, job: str, *args: str) -> dict[int, list[str]]:
        """What `logs` gives, by rank."""
        done = self.rankdeck("--json", "logs", job, *args)
        assert done.returncode == 0, done.stderr[-800:]
        found: dict[int, list[str]] = {}
        for line in map(json.loads, done.stdout.splitlines()):
            found.setdefault(line["rank"], []).append(line["text"])
        return found

    def left(self) -> list[str]:
        """Objects in the namespace that bear our label."""
        kinds = _KINDS + (
            ",mpijobs" if "mpijobs" in self.kubectl("api-resources", "-o", "name") else ""
        )
        return self.kubectl("get", kinds, "-l", OUR_LABEL, "-o", "name").split()

    def pods(self) -> list[dict[str, Any]]:
        """Our pods."""
        return json.loads(self.kubectl("get", "pods", "-l", OUR_LABEL, "-o", "json"))["items"]

    def processes(self, *words: str) -> list[int]:
        """The processes of this site whose command has these words, one after another."""
        home = f"HOME={self.environment['HOME']}\0".encode()
        wanted = "\0".join(("", *words, "")).encode()
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (
                    wanted in (path / "cmdline").read_bytes()
                    and home in (path / "environ").read_bytes()
                ):
                    found.append(int(path.name))
        return found

    def said(self) -> str:
        """The cluster in one line: versions, nodes, date."""
        version = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        nodes = self.kubectl("get", "nodes", "-o", "name", code=None).split()
        kind = "the double" if self.where.double else "a real cluster"
        kubelet = "kubelet pretended" if self.where.pretends else "containers run"
        today = datetime.datetime.now(datetime.UTC).date()
        return f"{kind}: Kubernetes {version}, {len(nodes)} nodes, {kubelet}, {today}"


STEPS = (
    'echo "[rank $JOB_COMPLETION_INDEX] start on $(hostname)"; n=0; '
    'every=$(awk "BEGIN{print 1/$HZ}"); end=$(awk "BEGIN{print $RUN_S*$HZ}"); '
    'bad=$(awk "BEGIN{print ${FAIL_AT:-0}*$HZ}"); '
    'while [ "$n" -lt "$end" ]; do n=$((n+1)); echo "[rank $JOB_COMPLETION_INDEX] step $n loss 0.5"; '
    'if [ "${FAIL_INDEX:-}" = "$JOB_COMPLETION_INDEX" ] && [ "$n" -ge "$bad" ]; then exit 3; fi; '
    'sleep "$every"; done'
)
"""What the pretended kubelet does, as a shell script."""
