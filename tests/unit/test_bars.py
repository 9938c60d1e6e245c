"""Progress bars of many ranks are grouped by their label, each with its percentage."""

import pytest

from rankdeck.logs.bars import group_bars, read_bar
from rankdeck.logs.merged_log import MergedLog
from rankdeck.model.rank_output import Chunk
from rankdeck.state.lines import Line, RankLog


def line(rank: int, text: str) -> Line:
    return Line(1.0, rank, "err", 0, text)


@pytest.mark.parametrize(
    ("text", "label", "percent"),
    [
        ("epoch 3:  62%|######2   | 62/100 [00:06<00:03,  9.9it/s]", "epoch 3", 62.0),
        (" 10%|\u2588         | 1/10", "", 10.0),
        (
            "Downloading \u2501\u2501\u2501\u2501\u257a\u2501\u2501  57.5% 0:00:12",
            "Downloading",
            57.5,
        ),
        ("\x1b[32mload\x1b[0m [====>    ] 40 %", "load", 40.0),
        ("shards 5/20", "shards", 25.0),
        ("   \u2501\u2501\u2501\u257a\u2501 1.5/3.0 MB 5.1 MB/s eta 0:00:01", "", 50.0),
        ("step 12/0", "step 12/0", None),
        ("999% mad", "", 100.0),
        ("waiting \u280b", "waiting \u280b", None),
    ],
)
def test_the_label_and_the_percentage_of_a_bar_are_found(text, label, percent) -> None:
    bar = read_bar(line(0, text))

    assert (bar.label, bar.percent) == (label, percent)


def test_bars_are_grouped_by_label_the_slowest_rank_first() -> None:
    texts = {0: "epoch 1: 60%|", 1: "epoch 1: 58%|", 2: "epoch 1: 60%|", 3: "load: 5%|"}

    epoch, load = group_bars(line(rank, text) for rank, text in texts.items())

    assert (epoch.label, epoch.ranks, epoch.range_words) == ("epoch 1", (0, 1, 2), "58 to 60%")
    assert epoch.by_percent() == [("58%", "1"), ("60%", "0,2")]
    assert (load.label, load.range_words) == ("load", "5%")


def test_merged_shows_the_slowest_rank_of_a_bar_and_how_far_all_are() -> None:
    logs = {rank: RankLog(rank) for rank in range(3)}
    for rank, log in logs.items():
        log.add(Chunk("j", "n1", rank, "err", 0, 1.0, b"go\n"))
        log.add(
            Chunk("j", "n1", rank, "err", 3, 2.0, b"\rfit: 10%%|\rfit: %d%%|" % (40 - 5 * rank))
        )
    merged = MergedLog(logs, fold=False)
    while merged.update():
        pass

    assert [one.text for one in merged.lines] == ["go"] * 3
    (begun,) = merged.begun
    assert (begun.rank, begun.text) == (2, "fit: 30%|  (3 ranks: 30 to 40%)")
