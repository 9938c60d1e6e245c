"""Filters by what Slurm says of a job: user, partition, account, QOS, state, node and reason."""

import time

import pytest

from rankdeck.model.queue import QueueStatus
from rankdeck.rules.query import QueryError, Subject, job_values, parse_query

STATUS = QueueStatus(
    id="1", state="COMPLETING", reason="ReqNodeNotAvail, UnavailableNodes:n[7-8]", partition="gpu,debug", account="Research",
    qos="high", nodes="n[1-3],m7",
)  # fmt: skip
JOB = Subject("1 train", "running", lambda _: None, values=job_values(STATUS, "ann", ("login",)))


@pytest.mark.parametrize(("text", "fits"), [
    ("user=ann", True), ("user=ANN", True), ("user=an", False), ("user!=bob", True),
    ("partition=gpu", True), ("partition=debug", True), ("partition=gpu,debug", False),
    ("account=research & qos=high", True), ("qos!=high", False),
    ("reason=ReqNodeNotAvail", True), ("reason=Priority", False),
    ("node=n2", True), ("node=n[3-9]", True), ("node=n4", False), ("node=login", True), ("n[1-1]", True),
    ("state=running", True), ("state=completing", True), ("state=timeout", False), ("train & !user=bob", True),
])  # fmt: skip
def test_a_job_is_found_by_what_slurm_says_of_it(text: str, fits: bool) -> None:
    assert parse_query(text)(JOB) is fits


def test_a_job_without_slurm_and_a_list_of_nodes_that_was_cut_match_what_they_have() -> None:
    plain = Subject("x", "done", lambda _: None, values=job_values(None, "", ("n1",)))
    cut = Subject("x", "running", lambda _: None, values=job_values(QueueStatus(nodes="n1,n5,…"), ""))  # fmt: skip

    assert [parse_query(text)(plain) for text in ("node=n1", "user=ann", "reason=x")] == [True, False, False]  # fmt: skip
    assert [parse_query(text)(cut) for text in ("node=n5", "node=n6")] == [True, False]


@pytest.mark.parametrize("text", ["user>ann", "partition<3", "usr=ann"])
def test_what_cannot_be_meant_is_said(text: str) -> None:
    with pytest.raises(QueryError):
        parse_query(text)


@pytest.mark.parametrize(("text", "fits"), [
    ("age<2h", True), ("age<90m", True), ("age<1h", False), ("age>1h & age<1d", True), ("age>=0.5d", False), ("!age>30s", False),
])  # fmt: skip
def test_a_job_is_found_by_when_it_began(text: str, fits: bool) -> None:
    begun = Subject("x", "done", lambda _: None, at=time.time() - 4000)
    timeless = Subject("x", "done", lambda _: None)

    assert parse_query(text)(begun) is fits
    assert parse_query(text.lstrip("!"))(timeless) is False


def test_an_age_without_a_unit_says_how_it_is_written() -> None:
    with pytest.raises(QueryError, match="write age<2h") as error:
        parse_query("state=done & age<2")
    assert error.value.column == 17
