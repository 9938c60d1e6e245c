"""Hours and days from the site's Prometheus: what is asked, and what is made of any answer."""

import asyncio
import json
import time
from collections import deque
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest

from rankdeck.errors import MetricsError
from rankdeck.model.cluster import Cluster, Metrics, Node
from rankdeck.model.health import Times, times_between
from rankdeck.prometheus import site_past
from rankdeck.prometheus.site_past import (
    PAST_ROWS,
    SitePast,
    node_of_label,
    past_expression,
    past_numbers,
    read_matrix,
)
from rankdeck.values import replace
from tests.support.polling import until

NODES = (Node(name="gpu-01", address="10.0.0.1"), Node(name="n2.lab"))
TIMES = Times(1000.0, 10.0, 4)
SITE = Metrics(host="127.0.0.1", port=9090)


def row(metric: str, source: str = "") -> str:
    """The place of the first such row, as an answer has it."""
    return next(
        str(n) for n, r in enumerate(PAST_ROWS) if r.metric == metric and source in r.source
    )


def series(metric="cpu.used", source="rankdeck", node="gpu-01", values=((1000, "1"),), **labels):
    label = "Hostname" if source == "dcgm-exporter" else "instance"
    of = {"rankdeck_number": row(metric, source), label: node, **labels}
    return {"metric": of, "values": [list(value) for value in values]}


def matrix(*rows, **more):
    return {"resultType": "matrix", "result": list(rows), **more}


def read(*rows):
    return read_matrix(matrix(*rows), SITE, NODES, TIMES)


# ---- times and questions


def test_times_are_whole_multiples_of_their_step_so_that_the_server_can_cache() -> None:
    found = times_between(1_000_003.0, 1_003_603.0)

    assert found.step == 30.0
    assert found.start % 30 == 0
    assert found.start >= 1_000_003
    assert found.end <= 1_003_603 < found.end + found.step


def test_a_moment_has_one_time() -> None:
    assert times_between(5.0, 5.0) == Times(5.0, 1.0, 1)


def test_the_question_names_every_node_by_name_and_address_and_what_tells_clusters_apart() -> None:
    asked = past_expression(replace(SITE, labels={"cluster": 'a"b\\'}), NODES, TIMES)

    assert 'instance=~"[[]?(gpu-01|10[.]0[.]0[.]1|n2[.]lab)[]]?' in asked
    assert 'Hostname=~"' in asked
    assert r'cluster="a\"b\\"' in asked
    assert asked.count("label_replace") == len(PAST_ROWS)


def test_means_and_growths_look_back_over_more_than_one_scrape() -> None:
    asked = past_expression(replace(SITE, interval=60), NODES, TIMES)

    assert "[120s])" in asked
    assert "[240s])" in asked
    assert "[10s])" not in asked


@pytest.mark.parametrize(
    ("value", "node"),
    [
        ("gpu-01", "gpu-01"),
        ("gpu-01:9100", "gpu-01"),
        ("gpu-01.cluster.example.org:9100", "gpu-01"),
        ("10.0.0.1:9400", "gpu-01"),
        ("n2.lab.example:1", "n2.lab"),
        ("gpu-011", None),
        ("gpu-01x.lab", None),
        ("", None),
        (":9100", None),
    ],
)
def test_a_label_names_a_node_with_or_without_domain_and_port(value: str, node) -> None:
    assert node_of_label(value, NODES) == node


def test_a_label_may_hold_an_ipv6_address() -> None:
    nodes = (Node(name="six", address="fd00::7"),)

    assert node_of_label("[fd00::7]:9100", nodes) == "six"
    assert node_of_label("fd00::7", nodes) == "six"


# ---- answers


def test_a_gap_stays_a_gap() -> None:
    found = read(series(values=((1000, "0"), (1020, "NaN"), (1030, "7.5"))))

    assert found.series["gpu-01", "cpu.used"].values == (0.0, None, None, 7.5)


def test_our_own_names_win_and_the_source_is_said() -> None:
    theirs = series(source="node_exporter", values=((1000, "1"), (1010, "1")), job="node")
    ours = series(values=((1000, "2"),), job="deck")

    for rows in ((ours, theirs), (theirs, ours)):
        assert read(*rows).series["gpu-01", "cpu.used"].source == "rankdeck, job deck"
    assert read(theirs).series["gpu-01", "cpu.used"].source == "node_exporter, job node"


def test_ours_without_any_number_do_not_hide_theirs() -> None:
    empty = series(values=((1000, "NaN"),))
    theirs = series(source="node_exporter", values=((1000, "1"),))

    assert read(empty, theirs).series["gpu-01", "cpu.used"].source == "node_exporter"


def test_of_two_jobs_that_scrape_the_same_the_fuller_is_taken() -> None:
    few = series("cpu.load1", "node", values=((1000, "1"),), job="a")
    many = series("cpu.load1", "node", values=((1000, "2"), (1010, "2")), job="b")

    assert read(many, few).series["gpu-01", "cpu.load1"].source.endswith("job b")


def test_dcgm_exporter_names_the_node_in_its_own_label() -> None:
    found = read(series("gpu.used", "dcgm-exporter", job="gpus"))

    assert found.series["gpu-01", "gpu.used"].source == "dcgm-exporter, job gpus"


def test_made_up_numbers_stay_marked() -> None:
    assert read(series(simulated="1")).series["gpu-01", "cpu.used"].simulated


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        "x",
        {"metric": [], "values": []},
        {"metric": {}, "values": {}},
        {"metric": {"rankdeck_number": "99", "instance": "gpu-01"}, "values": [[1000, "1"]]},
        {"metric": {"rankdeck_number": "-1", "instance": "gpu-01"}, "values": [[1000, "1"]]},
        {"metric": {"rankdeck_number": 0, "instance": "gpu-01"}, "values": [[1000, "1"]]},
        series(node="stranger"),
        series(values=((1000, 1),)),
        series(values=(("1000", "1"),)),
        series(values=((1000,),)),
        series(values=((5, "1"),)),
        series(values=((1e300, "1"),)),
        series(values=((1000, "+Inf"),)),
        series(values=((1000, "1e300"),)),
        series(values=((1000, "1" * 41),)),
        series(values=((1000, "one"),)),
    ],
)
def test_what_is_no_number_of_ours_is_left_out(odd) -> None:
    well = series("cpu.load1", "node")

    assert [*read(odd, well).series] == [("gpu-01", "cpu.load1")]


@pytest.mark.parametrize(
    "data", [{}, {"resultType": "vector", "result": []}, matrix() | {"result": {}}]
)
def test_another_answer_is_refused(data) -> None:
    with pytest.raises(MetricsError, match="no answer of a Prometheus"):
        read_matrix(data, SITE, NODES, TIMES)


def test_control_characters_in_labels_and_warnings_reach_nobody() -> None:
    found = read_matrix(
        matrix(series(job="a\x1b[31mb"), warnings=["store \x1b]0;x\x07 is down"]),
        SITE,
        NODES,
        TIMES,
    )

    assert "\x1b" not in found.series["gpu-01", "cpu.used"].source
    assert "\x1b" not in found.warning
    assert "is down" in found.warning


# ---- over HTTP


@asynccontextmanager
async def server(answer, **options):
    """Something that answers every question with these bytes;
    yields where, and what it was asked.
    """
    asked: deque[bytes] = deque()

    async def serve(reader, writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        asked.append(head + await reader.readexactly(size))
        writer.write(answer() if callable(answer) else answer)
        if options.get("close", True):
            writer.close()
        else:
            await asyncio.sleep(60)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield replace(SITE, port=listening.sockets[0].getsockname()[1]), asked
    finally:
        listening.close()


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def good(*rows, **more) -> bytes:
    return json.dumps({"status": "success", "data": matrix(*rows), **more}).encode()


async def asked_of(answer, **options):
    async with server(answer, **options) as (site, _):
        return await past_numbers(site, NODES, TIMES)


BODY = good(series())


@pytest.mark.parametrize(
    "answer",
    [
        http(BODY),
        http(BODY, "200 OK", f"Content-Length: {len(BODY)}"),
        http(
            b"5;x=y\r\n" + BODY[:5] + b"\r\n" + f"{len(BODY) - 5:X}\r\n".encode() + BODY[5:] + b"\r\n0\r\n\r\n",
            "200 OK",
            "Transfer-Encoding: chunked",
        ),
        http(b"", "100 Continue") + http(BODY),
    ],
)  # fmt: skip
async def test_an_answer_may_come_in_any_of_the_forms_of_http(answer) -> None:
    found = await asked_of(answer)

    assert found.series["gpu-01", "cpu.used"].values[0] == 1.0


async def test_an_answer_is_whole_before_the_server_closes() -> None:
    answer = http(BODY, "200 OK", f"Content-Length: {len(BODY)}")

    assert (await asked_of(answer, close=False)).series


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "before its answer was whole"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "does not speak HTTP"),
        (b"x" * 200_000, "does not speak HTTP"),
        (http(b"", "301 Moved", "Location: https://u:p@evil.example/x"), "sends us on to evil.example"),
        (http(b"", "302 Found", "Location: //[/"), "sends us on to another address"),
        (http(b"no", "401 Unauthorized"), "refuses the login"),
        (http(b"no", "404 Not Found"), "is the path"),
        (http(b"no", "503 Busy"), "HTTP status 503"),
        (http(b'{"status":"error","error":"bad \\u001b[1m data"}', "400 Bad"), "refuses the question: "),
        (http(b"<html>"), "no answer of a Prometheus"),
        (http(b"[" * 100_000), "no answer of a Prometheus"),
        (http(b'{"status":"success","data":[]}'), "no answer of a Prometheus"),
        (http(b"", "200 OK", "Content-Length: 99999999999"), "more than 8 MB"),
        (http(b"", "200 OK", "Content-Length: x"), "does not speak HTTP"),
        (http(b"5\r\nab", "200 OK", "Transfer-Encoding: chunked"), "before its answer was whole"),
        (http(b"-5\r\nab", "200 OK", "Transfer-Encoding: chunked"), "does not speak HTTP"),
        (http(b"fffffff\r\nab", "200 OK", "Transfer-Encoding: chunked"), "more than 8 MB"),
        (http(b"x" * (9 << 20)), "more than 8 MB"),
    ],
)  # fmt: skip
async def test_a_bad_answer_is_one_clear_sentence(answer, why: str) -> None:
    with pytest.raises(MetricsError, match=why) as caught:
        await asked_of(answer)

    assert str(caught.value).isprintable()


async def test_a_server_that_says_nothing_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(site_past, "LIMIT", 0.2)
    with pytest.raises(MetricsError, match="does not answer within"):
        await asked_of(b"HTTP/1.1 200 OK\r\n", close=False)


async def test_a_server_that_is_not_there_is_said() -> None:
    async with server(b"") as (site, _):
        pass
    with pytest.raises(MetricsError, match="refuses the connection"):
        await past_numbers(site, NODES, TIMES)


async def test_the_login_is_sent_to_the_server_and_a_proxy_is_not_asked(
    monkeypatch, tmp_path
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with server(http(BODY)) as (site, asked):
        await past_numbers(replace(site, token_file=str(tmp_path / "token")), NODES, TIMES)

    assert b"\r\nAuthorization: Bearer s3cret\r\n" in asked[0]
    form = parse_qs(asked[0].rpartition(b"\r\n\r\n")[2].decode())
    assert form["start"] == ["1000.0"]
    assert form["end"] == ["1030.0"]
    assert form["step"] == ["10.0"]


async def test_a_token_of_two_lines_is_not_sent(tmp_path) -> None:
    (tmp_path / "token").write_text("a\r\nHost: evil")
    async with server(http(BODY)) as (site, asked):
        with pytest.raises(MetricsError, match="one line of ASCII"):
            await past_numbers(replace(site, token_file=str(tmp_path / "token")), NODES, TIMES)

    assert not asked


async def test_many_nodes_are_asked_for_in_parts() -> None:
    nodes = [Node(name=f"machine-{n:04}") for n in range(200)]
    async with server(http(good())) as (site, asked):
        await past_numbers(site, nodes, TIMES)

    queries = [parse_qs(one.rpartition(b"\r\n\r\n")[2].decode())["query"][0] for one in asked]
    assert max(map(len, queries)) < 16_384
    for node in nodes:
        assert sum(f"{node.name}|" in query or f"{node.name})" in query for query in queries) == 1


# ---- for a screen


@asynccontextmanager
async def past_of(site):
    cluster = Cluster(name="c", nodes=NODES, metrics=site)
    async with asyncio.TaskGroup() as tasks:
        yield SitePast(cluster, tasks.create_task)


def with_numbers(view):
    return view if view.numbers else None


def in_trouble(view):
    return view if view.trouble else None


async def test_a_screen_never_waits_and_gets_the_numbers_once_they_are_there() -> None:
    now = time.time()
    answer = http(good(series(values=((now - 600, "5"),))))
    async with server(answer) as (site, asked), past_of(site) as past:
        first = past.view("gpu-01", 1.0, now)
        later = await until(lambda: with_numbers(past.view("gpu-01", 1.0, now)))
        again = past.view("gpu-01", 1.0, now)

    assert first.numbers is None
    assert 5.0 in later.numbers.series["gpu-01", "cpu.used"].values
    assert again == later
    assert len(asked) == 1


async def test_a_server_in_trouble_is_not_asked_at_each_look() -> None:
    async with server(http(b"no", "503 Busy")) as (site, asked), past_of(site) as past:
        found = await until(lambda: in_trouble(past.view("gpu-01", 1.0)))
        for hours in (6.0, 24.0):
            past.view("gpu-01", hours)
            await asyncio.sleep(0.05)

    assert found.trouble == f"127.0.0.1:{site.port} answers with HTTP status 503"
    assert len(asked) == 1


async def test_a_cluster_without_metrics_has_no_past_of_the_site() -> None:
    async with past_of(None) as past:
        assert past.view("gpu-01", 1.0) is None
        assert await past.of_job(["gpu-01"], 0.0, 1e6, 1) == site_past.JobNumbers()


async def test_a_job_of_hours_gets_rows_as_the_history_has_them() -> None:
    end = 100_000.0
    values = ((end - 3600, "5"), (end, "7"))
    answer = http(
        good(series(values=values, simulated="1"), series("cpu.load1", "node", "n2.lab:1", values))
    )
    async with server(answer) as (site, _), past_of(site) as past:
        found = await past.of_job(["gpu-01", "n2.lab"], end - 7200, end, 9)

    last = found.rows[-1]
    assert (last["at"], last["of"], last["simulated"]) == (end - end % 30, 9, ["cpu"])
    assert last["metrics"] == ["cpu.load1", "cpu.used"]
    assert last["nodes"] == {"gpu-01": [None, 7.0], "n2.lab": [7.0, None]}
    assert found.rows[0]["nodes"] == {"gpu-01": [None, None], "n2.lab": [None, None]}
    assert "node_exporter" in found.source


async def test_a_job_whose_site_does_not_answer_says_so() -> None:
    async with server(http(b"no", "503 Busy")) as (site, _), past_of(site) as past:
        found = await past.of_job(["gpu-01"], 0.0, 7200.0, 1)

    assert not found.rows
    assert "HTTP status 503" in found.trouble
