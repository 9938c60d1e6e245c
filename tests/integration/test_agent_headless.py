"""The agent against a real mosquitto: hello, samples, goodbye, and what goes wrong."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from tests.support.ports import free_port

from rankdeck.remote.bundle import build_bundle
from rankdeck_agent import wire

pytestmark = pytest.mark.slow
LIMIT = 60.0


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def agent(tmp_path):
    path = tmp_path / "agent.pyz"
    path.write_bytes(build_bundle().data)
    return path


@contextlib.contextmanager
def mosquitto(folder, port, *lines):
    if not (program := shutil.which("mosquitto")):
        pytest.skip("mosquitto is not installed")
    conf = folder / "mosquitto.conf"
    conf.write_text(
        "\n".join([f"listener {port} 127.0.0.1", *(lines or ["allow_anonymous true"])]) + "\n"
    )
    broker = subprocess.Popen(
        [program, "-c", conf], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: reachable(port))
        # Else somebody else has taken the port meanwhile.
        assert broker.poll() is None, f"mosquitto did not start on port {port}"
        yield broker
    finally:
        broker.terminate()
        broker.wait(LIMIT)


def reachable(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(true):
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def heard(port, count, *, topic="rankdeck/#", limit=60):
    """The first messages on the broker, decoded."""
    if not shutil.which("mosquitto_sub"):
        pytest.skip("mosquitto_sub is not installed")
    argv = [
        "mosquitto_sub",
        "-p",
        str(port),
        "-t",
        topic,
        "-C",
        str(count),
        "-W",
        str(limit),
        "-F",
        "%t %p",
    ]
    done = subprocess.run(argv, capture_output=True, check=False)
    messages = []
    for line in done.stdout.splitlines():
        name, _, payload = line.partition(b" ")
        _, node, kind = wire.split_topic(name.decode())
        messages.append((node, wire.decode_message(kind, payload)))
    return messages


def last_hello(port):
    messages = heard(port, 1, topic="rankdeck/1/lab/n1/hello", limit=20)
    return messages[0][1] if messages else None


def telemetry(agent, port, **more):
    config = {
        "cluster": "lab",
        "node": "n1",
        "host": "127.0.0.1",
        "port": port,
        "period": 0.2,
        **more,
    }
    process = subprocess.Popen(
        [sys.executable, "-I", agent, "telemetry"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(json.dumps(config).encode() + b"\n")
    process.stdin.flush()
    return process


def end(process):
    """Close standard input, the lease; what it said on stderr."""
    _, said = process.communicate(timeout=LIMIT)
    return said.decode()


def test_the_lease_is_standard_input_and_its_end_says_goodbye(agent, port, tmp_path):
    with mosquitto(tmp_path, port):
        process = telemetry(agent, port, simulate=["gpu", "rdma"])
        until(lambda: (hello := last_hello(port)) and hello.up)
        samples = [m for _, m in heard(port, 3, topic="rankdeck/1/lab/n1/sample")]
        whole = samples[-1]
        while "mem.total" not in whole.values:  # on a busy machine it may not have been read yet
            ((_, whole),) = heard(port, 1, topic="rankdeck/1/lab/n1/sample")
        hello = last_hello(port)
        said = end(process)
        goodbye = last_hello(port)

    assert process.returncode == 0
    assert said == ""
    # On a busy machine a beat may be left out.
    assert sorted({s.seq for s in samples}) == [s.seq for s in samples]
    assert whole.values["mem.total"][""] > 0
    assert set(whole.values["gpu.used"]) == {"0", "1", "2", "3"}
    assert tuple(hello.simulated) == ("gpu", "rdma")
    assert hello.period == 0.2
    assert not goodbye.up


def test_health_that_is_due_costs_no_sample(agent, port, tmp_path):
    """Both are sent in one turn: that the first is still being written is no slow connection."""
    with mosquitto(tmp_path, port):
        process = telemetry(agent, port, period=1, heartbeat=1)
        # On one core paho's thread writes nothing before the sampler rests.
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        until(lambda: (hello := last_hello(port)) and hello.up)
        kinds = [type(m).__name__ for _, m in heard(port, 16) if not isinstance(m, wire.Event)]
        end(process)

    sent = kinds[kinds.index("Sample") :]
    after = [then for now, then in itertools.pairwise(sent) if now == "HealthReport"]
    assert len(after) >= 2
    assert set(after) == {"Sample"}


def test_headless_ends_on_sigterm_with_a_goodbye(agent, port, tmp_path):
    conf = tmp_path / "agent.conf"
    conf.write_text(f"cluster = lab\nnode = n1\nhost = 127.0.0.1\nport = {port}\nperiod = 0.2\n")
    with mosquitto(tmp_path, port):
        process = subprocess.Popen(
            [sys.executable, "-I", agent, "--config", conf], stdin=subprocess.DEVNULL
        )
        heard(port, 2)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
        goodbye = last_hello(port)

    assert process.returncode == 0
    assert not goodbye.up


def test_a_killed_agent_is_announced_by_its_will(agent, port, tmp_path):
    with mosquitto(tmp_path, port):
        process = telemetry(agent, port)
        until(lambda: (hello := last_hello(port)) and hello.up)
        process.kill()
        process.communicate(timeout=LIMIT)
        until(lambda: not last_hello(port).up)


def test_a_broker_that_is_not_there_is_one_sentence_until_it_comes(agent, port, tmp_path):
    process = telemetry(agent, port)
    try:
        first = process.stderr.readline().decode()
        with mosquitto(tmp_path, port):
            until(lambda: (hello := last_hello(port)) and hello.up)
            said = end(process)
    finally:
        process.kill()

    where = f"rankdeck-agent: broker 127.0.0.1:{port}"
    assert first.strip() == f"{where} cannot be reached: Connection refused (ECONNREFUSED)"
    assert said.splitlines() == [f"{where} connected"]


def test_a_broker_that_restarts_gets_hello_again(agent, port, tmp_path):
    process = telemetry(agent, port)
    try:
        for _ in range(2):
            with mosquitto(tmp_path, port):
                until(lambda: (hello := last_hello(port)) and hello.up)
    finally:
        said = end(process)

    assert "has ended the connection" in said
    assert "Traceback" not in said


def test_a_wrong_password_is_one_sentence(agent, port, tmp_path):
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    if not (program := shutil.which("mosquitto_passwd")):
        pytest.skip("mosquitto_passwd is not installed")
    subprocess.run([program, "-b", passwords, "n1", "right"], check=True)
    passwords.chmod(0o644)
    lines = ("allow_anonymous false", f"password_file {passwords}", "user root")
    with mosquitto(tmp_path, port, *lines):
        process = telemetry(agent, port, username="n1", password="wrong")
        said = process.stderr.readline().decode()
        # Long enough for two more tries: they must be quiet.
        time.sleep(2.5)
        said += end(process)

    assert said.splitlines() == [
        f"rankdeck-agent: broker 127.0.0.1:{port} refuses the user name or password"
    ]
    assert process.returncode == 0


def test_an_agent_without_tls_loads_no_openssl_and_survives_a_socket_that_is_not_ready() -> None:
    # paho names ssl.SSLWantReadError where recv() says "again": the name has to exist.
    code = (
        "import socket, sys\n"
        "from rankdeck_agent import telemetry\n"
        "from rankdeck_agent.config import from_mapping\n"
        "asking = telemetry._client(from_mapping({'cluster': 'lab', 'host': 'broker'}))\n"
        "print({'ssl', '_ssl', '_hashlib'} & set(sys.modules))\n"
        "ours, theirs = socket.socketpair()\n"
        "ours.setblocking(False)\n"
        "asking._sock = ours\n"
        "try:\n"
        "    asking._sock_recv(1)\n"
        "except BlockingIOError:\n"
        "    print('again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.stdout == "set()\nagain\n", done.stderr


def test_hello_tells_of_the_machine_and_of_its_devices(agent, port, tmp_path):
    def told():
        hello = last_hello(port)
        return hello and {"kernel", "boot.at", "cpu.model"} <= hello.inventory.keys()

    with mosquitto(tmp_path, port):
        process = telemetry(agent, port)
        try:
            until(told)
        finally:
            end(process)
