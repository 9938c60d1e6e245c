"""Nodes and jobs of Kubernetes on the screens."""

import asyncio
from pathlib import Path

import pytest

from rankdeck.model.cluster import Cluster
from rankdeck.model.plan import UNTAGGED_WAIT
from rankdeck.schedulers.kubernetes.attach import kubernetes_attach_plan
from rankdeck.schedulers.kubernetes.node import Condition, DeviceCount, KubernetesNode
from rankdeck.schedulers.kubernetes.values import KubernetesJob
from rankdeck.ui.screens.job import JobScreen
from rankdeck.values import replace
from rankdeck_agent.wire import LAUNCHER
from tests.ui.support.stage import Stage
from tests.ui.test_screens import console, lacks, shows

CLUSTER = Cluster(name="k8s", nodes=(), backend="kubernetes")
VIEW = KubernetesNode(
    conditions=(
        Condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        Condition("GpuXid", "True", "Xid79", "fell off the bus"),
    ),
    taints=("spot=yes:NoSchedule",),
    devices={"nvidia.com/gpu": DeviceCount(8, 7, 6)},
    jobs=("training/pi",),
)
PI = KubernetesJob(kind="MPIJob", namespace="training", name="pi", owner="alice", created=1e9, state="running", ranks=4)  # fmt: skip


def stage() -> Stage:
    made = Stage(CLUSTER)
    made.fleet.scheduler_says("w0", VIEW)
    made.listed.append(PI)
    return made


async def test_a_node_of_kubernetes_shows_its_words_devices_and_jobs() -> None:
    async with console(stage()) as (app, pilot):
        await shows(app, pilot, "GpuXid: Xid79: fell off the bus")
        await pilot.press("enter")
        await shows(app, pilot, "8, 1 unhealthy, 6 asked by pods")
        await shows(app, pilot, "spot=yes:NoSchedule")
        await shows(app, pilot, "training/pi")


async def test_a_node_that_is_found_later_is_shown_at_once() -> None:
    made = Stage(CLUSTER)
    async with console(made) as (app, pilot):
        await shows(app, pilot, "0 of 0 nodes")
        made.fleet.scheduler_says("w7", replace(VIEW, conditions=VIEW.conditions[:1], devices={}))
        await shows(app, pilot, "w7")
        await shows(app, pilot, "by Kubernetes alone: no agent is heard")
        await shows(app, pilot, "1 of 1 nodes")


async def test_what_may_not_be_seen_is_no_zero() -> None:
    made = stage()
    made.fleet.scheduler_says("w0", replace(VIEW, devices={"a.b/c": DeviceCount(2, 2, None)}))
    async with console(made) as (app, pilot):
        await shows(app, pilot, "w0")
        await pilot.press("enter")
        await shows(app, pilot, "not allowed to see what pods ask")


@pytest.mark.long
async def test_a_job_of_others_is_opened_by_enter_and_its_owner_is_named_before_a_cancel() -> None:
    async with console(stage()) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "MPIJob of alice")
        await pilot.press("x")
        await shows(app, pilot, "open it first")
        await pilot.press("enter")
        await lacks(app, pilot, "not followed")
        await pilot.press("x")
        await shows(app, pilot, "Cancel this job?")
        await shows(app, pilot, "MPIJob of alice")


async def test_why_pods_are_missing_and_what_else_holds_gpus_is_in_the_list() -> None:
    made = stage()
    short = replace(PI, name="short", state="pending", why="FailedCreate: exceeded quota: gpus")
    ray = replace(PI, kind="RayCluster", name="ray", held={"nvidia.com/gpu": 6}, pods=2)
    made.listed += [short, ray]
    async with console(made, size=(170, 40)) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "exceeded quota: gpus")
        await shows(app, pilot, "holds 6 nvidia.com/gpu in 2 pods")


async def test_the_launcher_of_an_mpijob_is_shown_if_no_rank_can_be_told_apart() -> None:
    made = stage()
    plan = kubernetes_attach_plan(CLUSTER, replace(PI, pods=2))
    made.follow(plan)
    made.write(plan.job, LAUNCHER, "pi is about 3.14\n")
    tagged = kubernetes_attach_plan(CLUSTER, replace(PI, name="tagged", uid="2", pods=2))
    made.follow(tagged)
    made.write(tagged.job, LAUNCHER, "a word of mpirun\n")
    made.write(tagged.job, 0, "step 1\n")
    async with console(made) as (app, pilot):
        app.push_screen(JobScreen(plan.job))
        await shows(app, pilot, "its ranks cannot be told apart")
        await shows(app, pilot, "pi is about 3.14")
        app.push_screen(JobScreen(tagged.job))
        await shows(app, pilot, "step 1")
        await asyncio.sleep(UNTAGGED_WAIT + 0.5)
        await lacks(app, pilot, "a word of mpirun")


async def test_what_one_may_not_do_is_off_in_the_footer_and_its_key_says_why() -> None:
    made = stage()
    made.refused = {"cancel": "you may not delete mpijobs.kubeflow.org"}
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "(x cancel)")
        await pilot.press("enter")
        await shows(app, pilot, "(x cancel)")
        await pilot.press("x")
        await shows(app, pilot, "you may not delete mpijobs.kubeflow.org")
        assert made.cancelled == []
        made.refused = {}
        await pilot.press("x")
        await shows(app, pilot, "Cancel this job?")


async def test_a_job_of_others_that_may_not_be_followed_is_not_opened() -> None:
    made = stage()
    made.refused = {"follow": "you may not get pods/log"}
    async with console(made) as (app, pilot):
        await pilot.press("2")
        await shows(app, pilot, "(enter open)")
        await pilot.press("enter")
        await shows(app, pilot, "you may not get pods/log")
        assert len(made.listed) == 1


async def test_a_job_that_may_not_be_started_is_not_sent(tmp_path: Path) -> None:
    made = stage()
    (tmp_path / "train.yaml").write_text("job")
    made.files = (tmp_path / "train.yaml",)
    made.refused = {"launch": "you may not create jobs.batch"}
    async with console(made) as (app, pilot):
        await pilot.press("3")
        await shows(app, pilot, "(enter launch)")
        await pilot.press("enter")
        await shows(app, pilot, "you may not create jobs.batch")
        assert made.launched == []
