"""Numbers picked from what real trainers and benchmarks print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdeck.rules.progress import _DEFAULTS, ProgressReader, named_numbers, step_pace
from tests.support.effort import effort

LINES = [
    ("{'loss': 2.3104, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': 0.03}", {"loss": 2.3104, "epoch": 0.03}),
    (" 12%|█▏        | 120/1000 [00:10<01:20,  9.85it/s]", {"step": 120, "steps": 1000, "steps_s": 9.85}),
    ("Epoch 0:  13%|█▎ | 125/938 [00:05<00:35, 22.90it/s, v_num=0, train_loss=0.512]", {"step": 125, "steps": 938, "loss": 0.512}),
    (" iteration      100/  500000 | consumed samples: 25600 | throughput per GPU (TFLOP/s/GPU): 123.4 | lm loss: 1.083E+01 |",
     {"step": 100, "steps": 500000, "loss": 10.83, "tflops": 123.4}),
    ("Training epoch 0, iteration 9/999 | lr: 3e-05 | global_step: 9 | reduced_train_loss: 10.3", {"loss": 10.3}),
    ("     8388608       2097152     float     sum      -1    151.2   55.48  104.0      0    150.9   55.6  104.2      0",
     {"size": 8388608, "busbw_gb": 104.0}),
    ("# Avg bus bandwidth    : 232.915", {"avg_busbw_gb": 232.915}),
    ("MFLOPS measured : 820.243942", {"mflops": 820.243942}),
    ("     120 of 1200    123.456 MFLOPS  Gosa 3.007379e-05", {"step": 120, "steps": 1200, "mflops": 123.456, "gosa": 3.007379e-05}),
    ("step   120  loss 2.3010  11,800 tok/s", {"step": 120, "loss": 2.301, "tokens_s": 11800}),
    ("Epoch: [3][ 10/68]\tTime  6.551 ( 6.551)\tData  4.8 (4.8)\tLoss 1.6200e+01 (1.1323e+01)", {"step": 10, "steps": 68, "loss": 16.2}),
    ("23/100 [=====>........................] - ETA: 12s - loss: 0.1038 - accuracy: 0.9690", {"step": 23, "steps": 100, "loss": 0.1038}),
    ("INFO | fairseq.trainer | epoch 001:     10 / 100 loss=9.2, ppl=588.1, wps=3456", {"step": 10, "steps": 100, "loss": 9.2}),
    ("TIMING: 1000  CPU: 12.3, 0.012/step  Wall: 12.4, 0.012/step, 0.1 hours remaining", {"step": 1000}),
    ("Time step #          500", {"step": 500}),
    ("step 10 loss 1.2 lr 1.0e-04 tok/s 1013", {"step": 10, "loss": 1.2, "tokens_s": 1013}),
    ("lr 0.1 imgs/s 250 loss 3", {"images_s": 250, "loss": 3}),
    ("lr=1e-4, samples/sec=1,013, x=2", {"samples_s": 1013}),
    ("speed 11800 tok/s 0.5 s/step", {"tokens_s": 11800}),
    ("loss 1.2340  11800 tok/s  ok", {"loss": 1.234, "tokens_s": 11800}),
]  # fmt: skip


OTHER_LINES = [
    (" 313/1875 ━━━━━━━━━━━━━━━━━━━━ 4s 3ms/step - accuracy: 0.7512 - loss: 0.8123", {"step": 313, "steps": 1875, "loss": 0.8123}),
    ("[timer.py:189:stop] 0/40, SamplesPerSec=83.486, MemAllocated=0.26GB", {"samples_s": 83.486}),
    (" samples/sec: 7.799 | iteration       34/   10000 | lm_loss: 1.118665E+01 |", {"step": 34, "steps": 10000, "samples_s": 7.799, "loss": 11.18665}),
    ("epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.8", {"step": 34, "samples_s": 7.8}),
    ('{"current_steps": 3200, "total_steps": 3235, "loss": 4.4671, "eval_loss": null, "epoch": 0.99}',
     {"step": 3200, "steps": 3235, "loss": 4.4671, "epoch": 0.99}),
    ("[Rank 0] time (ms) | forward: 652.41 | backward: 2164.52 | step: 1172.13", {}),
    ("timing_s/gen:12.1 - timing_s/step:34 - timing_s/update:10.2", {}),
    ("Average step: 0.512 s", {}),
    ("  Gradient Accumulation steps = 8", {}),
    ("  Total optimization steps = 1,170", {"steps": 1170}),
    ("warmup steps: 100, save steps: 500", {}),
    ("8.5 examples/second between steps 100 and 200", {}),
    ("step 1,170 loss 2.5", {"step": 1170, "loss": 2.5}),
    ("step 7, warmup steps: 100", {"step": 7}),
    ("Loading checkpoint shards:  25%|██▌       | 1/4 [00:02<00:07,  2.44s/it]", {}),
    ("Running tokenizer on dataset (num_proc=16):  45%|████▌ | 23000/51200 [00:03<00:04, 6800 examples/s]", {}),
    ("Evaluating:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]", {}),
    ("Capturing CUDA graph shapes:  10%|█         | 3/35 [00:01<00:12,  2.50it/s]", {}),
    ("Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, 12.00it/s]", {}),
    ("model-00001-of-00004.safetensors:  45%|████▌     | 2.24G/4.98G [00:20<00:25, 108MB/s]", {}),
    ("Training:  50%|█████     | 50/100 [00:10<00:10,  5.00it/s]", {"step": 50, "steps": 100, "steps_s": 5.0}),
    ("Epoch 0:  50%|█████     | 5/10 [00:01<00:01, 5.0it/s, val_loss=0.5, train_loss=0.6]",
     {"step": 5, "steps": 10, "steps_s": 5.0, "loss": 0.6}),
]  # fmt: skip
"""Lines -> all numbers in them: durations, settings, and bars of other work are no steps."""


@pytest.mark.parametrize(("line", "wanted"), OTHER_LINES)
def test_a_number_that_says_nothing_of_the_job_is_not_taken(
    line: str, wanted: dict[str, float]
) -> None:
    assert named_numbers(line, _DEFAULTS) == pytest.approx(wanted)


def test_a_pattern_of_the_job_file_finds_what_it_asks_for() -> None:
    reader = ProgressReader(
        {"step": r"warmup steps: (\d+)", "steps": r"Loading.*\| \d+/(\d+)"}, None
    )

    reader.take("warmup steps: 100", 0, 1.0)
    reader.take("Loading:  25%|██▌       | 1/4 [00:02<00:07,  2.44s/it]", 0, 2.0)

    assert reader.now is not None
    assert (reader.now.step, reader.now.steps) == (100, 4)


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_the_numbers_of_a_line_are_found(line: str, wanted: dict[str, float]) -> None:
    found = named_numbers(line, _DEFAULTS)

    assert {name: found.get(name) for name in wanted} == pytest.approx(wanted)


def test_patterns_of_the_job_file_replace_the_usual_ones() -> None:
    reader = ProgressReader({"step": r"it=(\d+)", "residual": r"res=(\S+)"}, None)

    reader.take("it=4 res=1e-3 loss 9", 0, 1.0)
    reader.take("it=5 res=nan", 0, 2.0)

    assert reader.now is not None
    assert (reader.now.step, reader.now.values) == (5, {"residual": 1e-3})


def test_one_rank_is_believed_and_time_does_not_run_back() -> None:
    reader = ProgressReader({}, None)

    assert reader.take("step 1 of 4 loss 3", 2, 5.0)
    assert not reader.take("step 9 of 4 loss 9", 0, 6.0)
    assert not reader.take("step 0 of 4 loss 4", 2, 4.0)
    assert reader.take("step 2 of 4 loss 2", 2, 7.0)

    assert reader.now is not None
    assert reader.now.share == 0.5
    assert reader.now.series["loss"] == (3.0, 2.0)


def test_what_an_earlier_session_read_goes_on() -> None:
    first = ProgressReader({}, None)
    first.take("step 1 loss 3", 0, 1.0)
    first.take("step 2 loss 2", 0, 2.0)

    second = ProgressReader({}, first.now)
    second.take("step 3 loss 1", 0, 3.0)

    assert second.now is not None
    assert second.now.series["loss"] == (3.0, 2.0, 1.0)


BACKTRACKS = r"(a+)+$"
"""Python's own engine tries 2^n ways on n letters and one that does not fit."""


@pytest.mark.timeout(100)
def test_a_pattern_that_backtracks_costs_no_time() -> None:
    reader = ProgressReader({"loss": BACKTRACKS}, None)

    assert not reader.take("a" * 590 + "1b", 0, 1.0)


@pytest.mark.timeout(400)
@given(
    pattern=st.from_regex(r"([(][a1.]{1,2}[*+?]?[)]([*+]|[{]0,40[}])){1,4}[$=]?", fullmatch=True)
)  # fmt: skip
def test_no_pattern_that_is_taken_costs_more_than_some_milliseconds_a_line(
    pattern: str,
) -> None:
    reader = ProgressReader({"loss": pattern}, None)

    # Less than 1 is usual; a pattern that backtracks takes hours.
    assert effort(lambda: reader.take("a1" * 300 + "b", 0, 1.0)) < 60


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=a)(\d)", "(", r"(.{0,999}){0,999}"])
def test_a_saved_pattern_that_cannot_be_used_is_ignored_with_one_sentence(
    pattern: str,
) -> None:
    reader = ProgressReader({"loss": pattern, "step": r"it=(\d+)"}, None)

    assert reader.take("it=4", 0, 1.0)
    assert [text.partition(":")[0] for text in reader.refused] == ["progress.loss is ignored"]


def test_a_line_that_is_not_unicode_is_searched_all_the_same() -> None:
    reader = ProgressReader({"step": r"it=(\d+)"}, None)

    assert reader.take("\udce9 it=7", 0, 1.0)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([(10.0, "step 5 loss 2"), (12.0, "saved"), (16.0, "step 8 loss 1")], (8, 2.0)),
        ([(10.0, "step 5 loss 2")], (5, None)),
        ([(10.0, "step 5"), (10.0, "step 6")], (6, None)),
        ([(10.0, "step 9"), (11.0, "step 1")], (1, None)),
        ([(10.0, "hello")], (None, None)),
        ([], (None, None)),
    ],
)
def test_the_seconds_of_a_step_are_those_between_the_lines_that_tell_steps(
    lines: list[tuple[float, str]], told: tuple[float | None, float | None]
) -> None:
    assert step_pace(lines) == told
