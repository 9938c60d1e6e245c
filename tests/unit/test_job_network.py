"""The job network in plans: addresses and variables of it, told by the file or asked for."""

import pytest

from rankdeck.backends.job_network import asked_addresses, with_addresses
from rankdeck.backends.launchers import plan_job
from rankdeck.backends.plan_text import write_plan
from rankdeck.model.cluster import Cluster, Node
from rankdeck.model.job_spec import Container, JobSpec, Launch, MpiOptions
from rankdeck.model.plan import Plan
from rankdeck.schedulers.kubernetes.manifest import job_objects
from rankdeck.schedulers.slurm.backend import batch_script
from rankdeck.values import replace

NODES = (Node(name="a", address="10.1.0.1"), Node(name="b", address="10.1.0.2"))
CLUSTER = Cluster(name="lab", nodes=NODES, network="10.20.0.0/24")
SPEC = JobSpec(name="t", launch=Launch.TORCHRUN, command=("app",), nodes=2, ranks_per_node=1)


def plan_of(launch: Launch, cluster: Cluster = CLUSTER) -> Plan:
    ranks = 0 if launch is Launch.TENSORFLOW else 1
    return plan_job(cluster, replace(SPEC, launch=launch, ranks_per_node=ranks), "t-1")


def test_torchrun_meets_at_an_address_of_the_job_network() -> None:
    plan = plan_of(Launch.TORCHRUN)
    argv = plan.nodes[1].processes[0].argv

    assert "--master-addr=${RANKDECK_ADDRESS_0}" in argv
    assert "--local-addr=${RANKDECK_ADDRESS}" in argv
    assert asked_addresses(plan) == (0,)
    filled = with_addresses(plan, {0: "10.20.0.7"}).nodes[1].processes[0].argv
    assert "--master-addr=10.20.0.7" in filled


def test_every_worker_of_tensorflow_and_the_coordinator_of_jax_are_in_the_job_network() -> None:
    tensorflow, jax = plan_of(Launch.TENSORFLOW), plan_of(Launch.JAX)

    assert asked_addresses(tensorflow) == (0, 1)
    workers = with_addresses(tensorflow, {0: "10.20.0.7", 1: "fd00::8"}).nodes[0].processes[0]
    assert (
        '["10.20.0.7:${RANKDECK_PORT}", "[fd00::8]:${RANKDECK_PORT}"]' in workers.env["TF_CONFIG"]
    )
    env = with_addresses(jax, {0: "10.20.0.7"}).nodes[1].processes[0].env
    assert env["JAX_COORDINATOR_ADDRESS"] == "10.20.0.7:${RANKDECK_PORT}"
    assert (env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]) == ("2", "1")


def test_workers_of_tensorflow_on_virtual_nodes_of_one_machine_have_ports_of_their_own() -> None:
    nodes = tuple(Node(name=name, address="127.0.0.1", interface="eth0") for name in "ab")
    plan = plan_of(Launch.TENSORFLOW, Cluster(name="demo", nodes=nodes))
    workers = with_addresses(plan, {0: "192.0.2.2", 1: "192.0.2.2"}).nodes[1].processes[0]

    told = '["192.0.2.2:${RANKDECK_PORT}", "192.0.2.2:${RANKDECK_PORT+1}"]'
    assert told in workers.env["TF_CONFIG"]


@pytest.mark.parametrize("launch", list(Launch))
def test_every_launcher_tells_its_ranks_the_interface(launch: Launch) -> None:
    for node in plan_of(launch).nodes:
        assert node.env["NCCL_SOCKET_IFNAME"] == "=${RANKDECK_INTERFACE}"
        assert node.env["GLOO_SOCKET_IFNAME"] == "${RANKDECK_INTERFACE}"
        assert node.env["UCX_NET_DEVICES"] == "${RANKDECK_DEVICES}"
        assert node.network == "10.20.0.0/24"


def test_what_the_file_says_is_not_asked_for() -> None:
    inside = (Node(name="a", address="10.20.0.1", interface="ib0"), NODES[1])
    plan = plan_of(Launch.TORCHRUN, replace(CLUSTER, nodes=inside))

    assert "--master-addr=10.20.0.1" in plan.nodes[1].processes[0].argv
    assert plan.nodes[0].env["GLOO_SOCKET_IFNAME"] == "ib0"
    assert asked_addresses(plan) == ()


@pytest.mark.parametrize(
    ("cluster", "nodes"),
    [(replace(CLUSTER, network="127.0.0.0/8"), 2), (CLUSTER, 1), (replace(CLUSTER, network=""), 2)],
)
def test_nothing_is_asked_for_on_one_node_or_one_machine(cluster: Cluster, nodes: int) -> None:
    assert "RANKDECK_ADDRESS" not in write_plan(
        plan_job(cluster, replace(SPEC, nodes=nodes), "t-1")
    )


def test_what_the_job_sets_itself_wins() -> None:
    spec = replace(SPEC, env={"UCX_NET_DEVICES": "mlx5_1:1"})

    assert plan_job(CLUSTER, spec, "t-1").nodes[0].env["UCX_NET_DEVICES"] == "mlx5_1:1"


def test_a_plan_says_what_its_variables_stand_for() -> None:
    text = write_plan(plan_of(Launch.TORCHRUN))

    assert "# RANKDECK_ADDRESS_0: the address of a in the job network" in text
    assert 'export GLOO_SOCKET_IFNAME="$RANKDECK_INTERFACE"' in text


def test_mpich_is_told_where_mpiexec_is() -> None:
    spec = replace(SPEC, launch=Launch.MPI, mpi=MpiOptions(flavour="mpich"))
    argv = plan_job(CLUSTER, spec, "t-1").nodes[0].processes[0].argv

    assert argv[argv.index("-localhost") + 1] == "${RANKDECK_ADDRESS}"


@pytest.mark.parametrize("launch", list(Launch))
def test_an_sbatch_script_looks_its_nodes_up(launch: Launch) -> None:
    ranks = 0 if launch is Launch.TENSORFLOW else 2
    slurm = replace(CLUSTER, backend="slurm")
    script = batch_script(slurm, replace(SPEC, launch=launch, ranks_per_node=ranks), "t-1")
    alone = batch_script(slurm, replace(SPEC, launch=launch, ranks_per_node=ranks, nodes=1), "t-1")

    assert "ip -o addr show up scope global to 10.20.0.0/24" in script
    assert 'GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$RANKDECK_INTERFACE}"' in script
    assert "scontrol show hostnames" not in script
    assert ("OMPI_MCA_btl_tcp_if_include=10.20.0.0/24" in script) == (launch is Launch.MPI)
    assert "10.20.0.0/24" not in alone


def test_mpirun_in_a_pod_is_told_the_job_network() -> None:
    pods = replace(CLUSTER, backend="kubernetes", nodes=())
    spec = replace(SPEC, launch=Launch.MPI, container=Container(image="x"))
    text = str(job_objects(pods, spec, "t-1"))

    assert "btl_tcp_if_include" in text
    assert "10.20.0.0/24" in text
