"""Job and cluster files as people bring them: from a shell, a web page, another program."""

from pathlib import Path

import pytest

from rankdeck.cli.check import look_at
from rankdeck.config.clusters import read_cluster
from rankdeck.config.command_text import command_complaint, split_command
from rankdeck.config.jobs import change_value, read_job
from rankdeck.errors import ConfigError
from rankdeck.model.job_spec import Launch

HEAD = "job: t\nlaunch: plain\ncommand: "
CLUSTER = "cluster: lab\n"


def mistakes(tmp_path: Path, text: str, read=read_job) -> list[str]:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read(file)
    return [str(one).removeprefix(f"{file}:") for one in error.value.problems]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python3 a.py \\\n  --x 1 \\\n  --y 2\n", "python3 a.py --x 1 --y 2"),
        ("python3 a.py\n--x 1\n--y 2\n", "python3 a.py --x 1 --y 2"),
        ("echo '$x' 'a|b' \"c>d\" e\\;f", "echo $x a|b c>d e;f"),
        ("${RANKDECK_RUN}/a --at ${RANKDECK_ADDRESS}", "${RANKDECK_RUN}/a --at ${RANKDECK_ADDRESS}"),
        ("train.py model.layers[0]=3 +a.b=c ~old url=http://h/?a", "train.py model.layers[0]=3 +a.b=c ~old url=http://h/?a"),
    ],
)  # fmt: skip
def test_a_command_is_split_as_a_shell_would(text: str, words: str) -> None:
    assert " ".join(split_command(text)) == words


def test_a_long_word_takes_no_time() -> None:
    assert len(split_command("./a " + "x" * 500_000 + "\n" + " " * 500_000 + "--y")) == 3


def test_what_stands_in_quotes_stays_as_it_is() -> None:
    assert split_command("sh -c 'a\n-b \\\nc'") == ("sh", "-c", "a\n-b \\\nc")
    assert split_command("bash -lc 'module load cuda\npython3 a.py | tee b'") == (
        "bash",
        "-lc",
        "module load cuda\npython3 a.py | tee b",
    )


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("python3 a.py | tee log", "`|`"),
        ("cd /work && ./run.sh", "`&&`"),
        ("sleep 1; ./a", "`;`"),
        ("./server & ./client", "`&`"),
        ("./a > out 2>&1", "`>`"),
        ("python3 - <<EOF", "`<<`"),
        ("echo `id`", "```"),
        ("./a $HOME/x", "`$HOME`"),
        ("./a ${SLURM_JOB_ID}", "`${SLURM_JOB_ID`"),
        ("./a data/*.txt", "`data/*.txt`"),
        ("~/venv/bin/python a.py", "`~/venv/bin/python`"),
        ("FOO=1 ./a", "under `env`"),
        ("cd /data\npython3 a.py\n", "several lines"),
    ],
)
def test_what_only_a_shell_understands_is_refused(tmp_path: Path, text: str, sign: str) -> None:
    with pytest.raises(ValueError, match=r"shell|several lines") as error:
        split_command(text)
    assert sign in str(error.value)

    job = read_job_of(tmp_path, "[a]\n")
    with pytest.raises(ValueError, match=r"shell|several lines"):
        change_value(job, "command", text)


def read_job_of(tmp_path: Path, command: str):
    file = tmp_path / "job.yaml"
    file.write_text(f"{HEAD}{command}")
    return read_job(file)


@pytest.mark.parametrize(
    ("launch", "words", "part"),
    [
        (Launch.PLAIN, ("python3 a.py --x 1",), "one word with blanks"),
        (Launch.PLAIN, ("/opt/my app/run",), ""),
        (Launch.PLAIN, ("~/bin/a",), "home folder"),
        (Launch.MPI, ("mpirun", "-np", "4", "a"), "leave `mpirun`"),
        (Launch.TORCHRUN, ("/venv/bin/torchrun", "a.py"), "leave `torchrun`"),
        (Launch.PLAIN, ("srun", "a"), ""),
        (Launch.PLAIN, ("cd", "/data"), "a word of a shell"),
        (Launch.PLAIN, ("source", "env.sh"), "a word of a shell"),
        (Launch.PLAIN, ("./exec", "a"), ""),
        (Launch.TORCHRUN, ("python3", "a.py"), ""),
    ],
)
def test_a_list_of_words_that_is_no_command_is_refused(
    launch: Launch, words: tuple[str, ...], part: str
) -> None:
    found = command_complaint(words, launch)

    assert part in found if part else not found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("@train.sh\n", "3:10: file: not YAML: `@` cannot begin a text"),
        ("a --name: x\n", "3:18: file: not YAML: a colon and a blank"),
        ('"a" b\n', "3:14: file: not YAML: text behind a closing quote"),
        ("*.sh\n", "3:11: file: not YAML: `.` begins an alias"),
        ("[a, b[1], c\n", "file: not YAML: a list in brackets has no `]`"),
        ("[a]\non: [n[1-2], m]\n", "4:7: file: not YAML: a list in brackets"),
        ("[a]\n---\n" + HEAD + "[b]\n", "a second document begins here"),
        ("[a]\nnodes:\u00a02\n", "4:7: file: not YAML: a no-break space"),
        ("[\u201ca\u201d]\n", "3:11: command[0]: `\u201ca\u201d` has curved quotes"),
        ("[a]\nenv:\n  <<: {A: b}\n", "5:3: env: `<<` is not read"),
    ],
)
def test_mistakes_in_yaml_are_said_in_plain_words(tmp_path: Path, text: str, wanted: str) -> None:
    (found,) = mistakes(tmp_path, HEAD + text)

    assert wanted in found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("image: a.sif\n", "4:1: file: `image` belongs into `container:`"),
        ("partition: p\n", "4:1: file: `partition` belongs into `slurm:`"),
        ("container: a.sif\n", "`container: {image: a.sif}`"),
        ("nodes: n[1-4]\n", "4:8: nodes: is how many nodes; which ones stands in `on`"),
        ("nodes: [n1, n2]\n", "which ones stands in `on`"),
        ("env: {PATH: '$HOME/bin:$PATH'}\n", "no shell fills in `$HOME`"),
        ("env: {MY: 'a:$MY'}\n", "no shell fills in `$MY`"),
        ("container: {image: x, mounts: ['~/.c:/c']}\n", "`~/.c`: only a shell makes `~`"),
        ("container: {image: x, mounts: ['./d:/c']}\n", "`./d`: relative to no folder"),
        ("container: {image: ~/x.sif}\n", "`~/x.sif`: only a shell makes `~`"),
    ],
)
def test_what_stands_in_the_wrong_place_is_sent_to_the_right_one(
    tmp_path: Path, text: str, wanted: str
) -> None:
    assert any(wanted in one for one in mistakes(tmp_path, f"{HEAD}[a]\n{text}"))


def test_values_that_look_like_others_keep_their_spelling(tmp_path: Path) -> None:
    job = read_job_of(tmp_path, "[a]\nenv: {A: 2024-01-01, B: 12:30:45, C: 08, D: 'pa$$w0rd', E: '$(id)'}\n")  # fmt: skip

    assert job.env == {"A": "2024-01-01", "B": "12:30:45", "C": "08", "D": "pa$$w0rd", "E": "$(id)"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("user: op\nnodes: [n1]\n", "2:1: file: `user` belongs into `ssh:`"),
        ("nodes: [n1]\nssh: {port: 22}\n", "`port` belongs to a node"),
        ("nodes: [{name: n1, user: op}]\n", "`user` belongs into `ssh:`"),
        ("nodes: [op@n1]\n", "`op@n1`: the user stands in `ssh:"),
        ("nodes: [{name: n1, address: '10.0.0.1:22'}]\n", "the port stands in a key of its own"),
        ("nodes: [{name: n1, address: '[fd00::1]:22'}]\n", "the port stands in a key of its own"),
        ("nodes: [1]\n", "put it in quotes"),
        ("nodes:\n  n1: {slots: 8}\n", "expected a list: `- {name: n1, slots: 8}`"),
        ("nodes: [n1]\nnetwork: 10.0.0.5/24\n", "write it as 10.0.0.0/24"),
    ],
)
def test_mistakes_in_cluster_files_say_what_to_write(
    tmp_path: Path, text: str, wanted: str
) -> None:
    (found,) = mistakes(tmp_path, CLUSTER + text, read_cluster)

    assert wanted in found


FOREIGN_JOBS = {
    "cluster: lab\nnodes: [n1]\n": "a cluster file",
    "#!/bin/bash\n#SBATCH --nodes=2\nsrun a\n": "a script of sbatch",
    "#!/bin/sh\nexec a\n": "a script",
    "services:\n  a: {image: b}\n": "Docker Compose",
    "name: t\nresources: {accelerators: A100}\nrun: a\n": "SkyPilot",
    "name: t\nworkdir: .\nnum_nodes: 2\nrun: |\n  a\n": "SkyPilot",
    "[dist.ddp]\nj = 2x8\n": "TorchX",
    "compute_environment: LOCAL_MACHINE\nnum_machines: 2\n": "Accelerate",
    "model: llama\nepochs: 3\n": "it has none of",
}
FOREIGN_CLUSTERS = {
    HEAD + "[a]\nnodes: 2\n": "a job file",
    "apiVersion: v1\nkind: Config\nclusters: []\n": "a kubeconfig",
    "ClusterName=lab\nNodeName=n[1-2] CPUs=4\n": "a slurm.conf",
    "Host gpu*\n  User op\n": "an ssh_config",
    "n1 slots=8\nn2 slots=8\n": "an MPI hostfile and no cluster file: `rankdeck nodes --import",
    "[gpu]\nn1 ansible_host=10.0.0.1\n": "an Ansible inventory",
    "all:\n  hosts:\n    n1: {ansible_host: 10.0.0.1}\n": "an Ansible inventory",
}


@pytest.mark.parametrize(("text", "what"), FOREIGN_JOBS.items())
def test_a_file_that_is_no_job_is_called_by_its_name(tmp_path: Path, text: str, what: str) -> None:
    (found,) = mistakes(tmp_path, text)

    assert found.startswith("1:1: file: this is ")
    assert what in found


@pytest.mark.parametrize(("text", "what"), FOREIGN_CLUSTERS.items())
def test_a_file_that_is_no_cluster_is_called_by_its_name(
    tmp_path: Path, text: str, what: str
) -> None:
    (found,) = mistakes(tmp_path, text, read_cluster)

    assert found.startswith("1:1: file: this is ")
    assert what in found.replace("inventory or groups in YAML", "Ansible inventory")


def test_check_says_it_too_and_not_of_a_file_with_a_mistake(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "#!/bin/bash\n#SBATCH -N 2\n", look_at)
    assert "no job file or cluster file" in found
    assert len(mistakes(tmp_path, "Job: t\nlaunch: plain\ncommand: [a]\n", look_at)) == 2
