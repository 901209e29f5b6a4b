"""The figures of a request, on examples small enough to do by hand."""

import json
import time
from math import inf, nan

import pytest

from course_lib.metrics import Timing, clock, percentile


def test_ttft_is_the_first_wait_and_no_inter_token_latency() -> None:
    """Reported in public as a bug: TTFT appended to the list of gaps."""
    timing = Timing(0.0, (500.0, 520.0, 540.0), prompt_tokens=1)
    assert timing.ttft_s == 500 and timing.itl_s == [20, 20]
    assert timing.tpot_s == 20 and timing.end_to_end_s == 540 and timing.new_tokens == 3


def test_everything_counts_from_arrival_so_queueing_is_in_ttft() -> None:
    early, late = Timing(7.0, (10.0, 11.0), 4), Timing(9.5, (10.0, 11.0), 4)
    assert (early.ttft_s, late.ttft_s) == (3, 0.5)
    assert (early.end_to_end_s, late.end_to_end_s) == (4, 1.5)
    assert early.itl_s == late.itl_s == [1] and early.tpot_s == late.tpot_s == 1


def test_tpot_is_the_mean_gap_and_hides_which_gap_was_long() -> None:
    timing = Timing(0.0, (1.0, 1.5, 3.5, 4.0), 8)
    assert timing.itl_s == [0.5, 2, 0.5]
    assert timing.tpot_s == (4.0 - 1.0) / 3 == 1
    assert timing.decode_tokens_per_s == 1


def test_one_token_has_no_tpot_no_gap_and_no_decode_rate() -> None:
    timing = Timing(2.0, (2.5,), 10)
    assert timing.ttft_s == timing.end_to_end_s == 0.5
    assert timing.itl_s == [] and timing.tpot_s is None and timing.decode_tokens_per_s is None
    assert timing.prefill_tokens_per_s == 20 and timing.output_tokens_per_s == 2


def test_prefill_rate_counts_prompt_tokens_not_sequences() -> None:
    """Reported in public as a bug: two prompts of 512 tokens in 0.1 s were called 20 tokens per second."""
    both = [Timing(0.0, (0.1,), prompt_tokens=512) for _ in range(2)]
    assert [timing.prefill_tokens_per_s for timing in both] == [pytest.approx(5120)] * 2
    assert sum(timing.prefill_tokens_per_s for timing in both) == pytest.approx(10_240)
    assert Timing(0.0, (0.1,), prompt_tokens=2 * 512).prefill_tokens_per_s == pytest.approx(10_240)


def test_output_rate_over_the_whole_request_hides_the_first_wait() -> None:
    patient = Timing(0.0, tuple(9.0 + i / 10 for i in range(11)), 1000)
    assert patient.output_tokens_per_s == pytest.approx(1.1)
    assert patient.decode_tokens_per_s == pytest.approx(10) and patient.ttft_s == 9


def test_a_rate_is_missing_where_the_clock_saw_no_time_pass() -> None:
    timing = Timing(1.0, (1.0, 1.0), 5)
    assert timing.ttft_s == 0 and timing.tpot_s == 0 and timing.itl_s == [0]
    assert timing.prefill_tokens_per_s is timing.decode_tokens_per_s is timing.output_tokens_per_s is None


def test_the_dictionary_holds_every_figure_under_a_name_with_its_unit() -> None:
    timing = Timing(1.0, (1.5, 1.75, 2.0), 10)
    assert json.loads(json.dumps(timing.as_dict())) == {
        "prompt_tokens": 10, "new_tokens": 3, "ttft_s": 0.5, "itl_s": [0.25, 0.25], "tpot_s": 0.25, "end_to_end_s": 1.0,
        "prefill_tokens_per_s": 20.0, "decode_tokens_per_s": 4.0, "output_tokens_per_s": 3.0,
    }  # fmt: skip
    assert Timing(1.0, (1.5,), 10).as_dict()["tpot_s"] is None


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((0.0, (), 1), "no token came"),
        ((2.0, (1.0,), 1), "1.0 s comes after 2.0 s"),
        ((0.0, (1.0, 3.0, 2.0), 1), "2.0 s comes after 3.0 s"),
        ((nan, (1.0,), 1), "finite"),
        ((0.0, (1.0, inf), 1), "finite"),
        ((0.0, (1.0,), 0), "at least one token, not 0"),
    ],
)
def test_times_that_make_no_sense_are_refused(arguments: tuple, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Timing(*arguments)


def test_a_percentile_lies_between_its_neighbours_in_proportion() -> None:
    values = [40.0, 10.0, 20.0, 30.0]
    assert [percentile(values, q) for q in (0, 50, 100)] == [10, 25, 40]
    assert percentile(values, 90) == pytest.approx(37) and percentile([3.0], 99) == 3
    assert values == [40.0, 10.0, 20.0, 30.0]
    for bad in (([], 50), ([1.0], -1), ([1.0], 101)):
        with pytest.raises(ValueError, match=f"got {len(bad[0])} values and q={bad[1]}"):
            percentile(*bad)


def test_the_clock_of_the_cpu_counts_seconds_and_never_runs_backwards() -> None:
    now = clock("cpu")
    before, readings, after = time.perf_counter(), [now() for _ in range(100)], time.perf_counter()
    assert before <= readings[0] and readings[-1] <= after and readings == sorted(readings)
