"""Measuring a machine: what is run, how often, and what the result is made of. No test asks how fast the machine is."""

from typing import Any

import pytest
import torch

from course_lib import roofline
from course_lib.roofline import Machine


class Clock:
    """A clock that only runs move: the first takes 9 s, later ones as listed, and the last of those for ever."""

    def __init__(self, *seconds: float) -> None:
        self.now, self.seconds, self.runs = 0.0, [9.0, *seconds], 0

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1


def test_the_fastest_run_counts_and_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(5, 2, 4)
    monkeypatch.setattr(roofline, "perf_counter", clock)
    assert roofline.fastest_s(clock.run, for_s=20) == 2
    assert clock.runs == 1 + 6  # 5 + 2 + 4 + 4 + 4 s are not yet 20, and one more is
    hurried = Clock(3, 1, 2)
    monkeypatch.setattr(roofline, "perf_counter", hurried)
    assert roofline.fastest_s(hurried.run, for_s=0) == 1
    assert hurried.runs == 1 + 3


def test_bandwidth_is_the_bytes_of_a_large_matrix_over_the_seconds_of_a_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofline, "fastest_s", lambda run, for_s: (run(), 0.5)[1])
    assert roofline.measure_bandwidth(torch.bfloat16) == 2 * 256 * 2**20


@pytest.mark.parametrize(
    ("dtype", "seconds", "sizes", "rate"),
    [
        (torch.float32, [1, 8, 64, 512, 4096], [256, 512, 1024, 2048, 4096], 2 * 256**3 / 1e-6),  # one rate for all
        (torch.float64, [1, 4, 64, 512, 4096], [256, 512, 1024, 2048, 4096], 2 * 512**3 / 4e-6),  # the second is best
        (torch.float32, [100, 17_600], [256, 512], 2 * 256**3 / 1e-4),  # the third would take too long
        (torch.float16, [100_000], [256], 2 * 256**3 / 1e-1),
    ],
)
def test_the_rate_is_the_best_of_growing_products(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, seconds: list[int], sizes: list[int], rate: float
) -> None:
    seen: list[int] = []

    def timed(run: Any, for_s: float) -> float:
        seen.append(len(run.args[0]))
        return seconds[len(seen) - 1] / 1e6

    monkeypatch.setattr(roofline, "fastest_s", timed)
    monkeypatch.setattr(roofline, "perf_counter", lambda: 0.0)  # making the matrices takes no time
    assert roofline.measure_flops(dtype) == pytest.approx(rate)
    assert seen == sizes


def test_both_measurements_make_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "measure_bandwidth", lambda dtype: 10.0 * dtype.itemsize)
    monkeypatch.setattr(roofline, "measure_flops", lambda dtype: 100.0 * dtype.itemsize)
    assert roofline.measure_machine(torch.bfloat16) == Machine(bytes_per_s=20, flops_per_s=200)
    monkeypatch.setattr(roofline, "measure_flops", lambda dtype: 3.0)  # less than the first measurement computed
    assert roofline.measure_machine(torch.bfloat16) == Machine(bytes_per_s=20, flops_per_s=2 * 20 / 2)


def test_a_measured_machine_is_one_that_a_ceiling_takes() -> None:
    machine = roofline.measure_machine()
    assert 1e8 < machine.bytes_per_s < 1e13  # no machine of this century is outside: a slip of units would be
    assert 1e8 < machine.flops_per_s < 1e15
    assert machine.seconds(roofline.Work(10, 10)) > 0


@pytest.mark.parametrize("measure", [roofline.measure_bandwidth, roofline.measure_flops])
def test_only_a_dtype_of_weights_is_measured(measure: Any) -> None:
    with pytest.raises(ValueError, match="torch.int8 has no fractions"):
        measure(torch.int8)
