"""What a report is made of: no secret is in the archive, wherever it stood before."""

import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.backends.remote_log import Recording
from rankdeck.model.job import NodeNote
from rankdeck.model.job_spec import JobSpec, Launch
from rankdeck.model.rank_output import Chunk
from rankdeck.reports.job import Logs, ReportSource, pack_report
from rankdeck.rules.secrets import Secrets
from rankdeck.values import replace
from rankdeck_agent.rules.levels import Level
from rankdeck_agent.wire import NodeFile, ProcessPlan
from tests.support.node_events import node_event
from tests.unit.test_history import JOB, NODE

KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAA\nMARK3dKEYdata\n"
    "-----END OPENSSH PRIVATE KEY-----"
)
FORMS = {
    "github": ("ghp_" + "a1B2" * 9, "ghp_" + "a1B2" * 9),
    "hugging face": ("hf_" + "Ab3d" * 8, "hf_" + "Ab3d" * 8),
    "aws": ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "ngc": ("nvapi-" + "xY_9" * 10, "nvapi-" + "xY_9" * 10),
    "wandb": (f"WANDB_API_KEY={'0a1b2c3d' * 5}", "0a1b2c3d" * 5),
    "bearer": ("Bearer abc.DEF-123_xyz", "abc.DEF-123_xyz"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "url": ("https://bob:hunter22@example.org/x.git", "hunter22"),
    "url with @": ("https://bob:hun@ter22@example.org/x", "ter22"),
    "private key": (KEY, "MARK3dKEYdata"),
}
SECRETS = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x17F), min_size=6, max_size=40
).map(lambda text: f"S3cr{text}")


def planted(text: str, value: str) -> tuple[ReportSource, Recording, list[Chunk]]:
    """A job with the text in its fields and output; `value` is that
    of a variable with a telling name.
    """
    said = node_event("j-1", "n1", "trouble", 1.0, seq=1, text=text)
    argv = ("sh", "-c", f"run {text}", text)
    node = replace(
        NODE,
        env={"MY_TOKEN": value, "PLAIN": text},
        files=(NodeFile("f", f"a\n{text}\nb\n"),),
        processes=(ProcessPlan("rank 0", argv, {"OTHER": text}, f"/w/{text}", 0),),
    )
    spec = JobSpec(name="j", launch=Launch.PLAIN, command=argv, env={"A": text}, files={"f": text})
    note = NodeNote(
        at=1.0,
        node="n1",
        level=Level.BAD,
        check="c",
        device="",
        text=text,
        before=True,
        simulated=False,
    )
    job = replace(
        JOB,
        plan=replace(JOB.plan, nodes=(node,), spec=spec),
        first_failure=replace(JOB.first_failure, lines=(text,)),
        notes=(text,),
        node_notes=(note,),
    )
    source = ReportSource(job, (said,), [{"at": 1.0, "nodes": {"n1": {"why": text}}}], {"B": text})
    recording = Recording((said,), {"n2": f"not heard: {text}"})
    output = f"before\n{text}\nafter\n".encode()
    chunks = [Chunk("j-1", "n1", 0, stream, 0, 1.0, output) for stream in ("out", "err")]
    return source, recording, chunks


def archived(text: str, value: str) -> bytes:
    """Names and contents of all that is in the archive of such a job."""
    source, recording, chunks = planted(text, value)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        logs = Logs(folder / "logs")
        for chunk in chunks:
            logs.take(chunk)
        with (folder / "r.tar.gz").open("wb") as file:
            pack_report(source, recording, logs, file)
        with tarfile.open(folder / "r.tar.gz") as archive:
            files = [(entry.name, archive.extractfile(entry)) for entry in archive]
            return b"".join(n.encode() + f.read() for n, f in files if f is not None)


@pytest.mark.long
@given(SECRETS)
def test_the_value_of_a_secret_variable_is_nowhere_in_the_archive(value: str) -> None:
    found = archived(value, value)

    assert value.encode() not in found
    assert b"before" in found
    assert b"after" in found


@pytest.mark.parametrize("form", FORMS)
def test_what_has_the_form_of_a_secret_is_nowhere_in_the_archive(form: str) -> None:
    text, secret = FORMS[form]

    found = archived(text, "unrelated")

    assert secret.encode() not in found
    assert b"after" in found


def test_what_a_file_of_the_job_assigns_is_masked_in_the_output_too() -> None:
    source, recording, chunks = planted("harmless", "unrelated")
    node = replace(
        source.job.plan.nodes[0], files=(NodeFile("c.ini", 'password = "blue7horse"\n'),)
    )
    job = replace(source.job, plan=replace(source.job.plan, nodes=(node,)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        logs = Logs(folder / "logs")
        logs.take(replace(chunks[0], data=b"connected with blue7horse\n"))
        with (folder / "r.tar.gz").open("wb") as file:
            pack_report(replace(source, job=job), recording, logs, file)
        with tarfile.open(folder / "r.tar.gz") as archive:
            files = [archive.extractfile(entry) for entry in archive]
            text = b"".join(file.read() for file in files if file is not None)

    assert b"connected with ********" in text
    assert b"blue7horse" not in text


KEY = "".join(f"{chr(65 + n) * 60}\n" for n in range(5))


@pytest.mark.parametrize("cut", [0, 3, 70, 240])
def test_an_end_that_begins_inside_a_secret_keeps_nothing_of_it(cut: int, tmp_path: Path) -> None:
    _, _, (chunk, *_) = planted("harmless", "unrelated")
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}-----END RSA PRIVATE KEY-----\nafter\n"
    data = key[32 + cut :].encode()
    logs = Logs(tmp_path)
    logs.take(replace(chunk, offset=32 + cut, data=data[:20]))
    logs.take(replace(chunk, offset=52 + cut, data=data[20:]))
    (file,) = logs.mask(Secrets([]))

    assert file.read_bytes() == b"after\n"


def test_an_end_that_begins_in_ordinary_output_loses_the_line_that_it_begins_in(
    tmp_path: Path,
) -> None:
    _, _, (chunk, *_) = planted("harmless", "unrelated")
    logs = Logs(tmp_path)
    logs.take(replace(chunk, offset=7, data=b"f a line\n17\ndone\nstep 3\nAAAA\n"))
    (file,) = logs.mask(Secrets([]))

    assert file.read_bytes() == b"17\ndone\nstep 3\nAAAA\n"


@pytest.mark.parametrize(
    "line",
    [
        b"token = tokenizer(text)\n",
        b"step 3 loss 2.1, see https://example.org/a@b\n",
        b"key: 17 of 20\n",
    ],
)
def test_ordinary_output_stays_as_it_was(line: bytes) -> None:
    assert line in archived(line.decode().strip(), "unrelated")


@pytest.mark.parametrize("piece", [b"a-", b"token", b"-", b"x://", b"machine a login b "])  # fmt: skip
def test_a_long_line_is_looked_through_in_time_that_grows_with_its_length(
    piece: bytes,
) -> None:
    secrets = Secrets([{"MY_TOKEN": "S3cret-value"}])

    def cost(size: int) -> float:
        line = piece * (size // len(piece))
        begun = time.process_time()
        secrets.in_bytes(line)
        secrets.in_text(line.decode())
        return time.process_time() - begun

    assert cost(200_000) < 40 * max(cost(20_000), 0.001)
