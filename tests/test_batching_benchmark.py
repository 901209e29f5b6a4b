"""What benchmarks/batching.py works out, on a tiny model. How long anything takes is asserted nowhere."""

from dataclasses import replace

import pytest
import torch
from shapes import model_of

from benchmarks import batching

MODEL = model_of("mqa", torch.float32)


@pytest.fixture(scope="module")
def rounds() -> dict[int, list[batching.Round]]:
    before = torch.get_num_threads()
    try:
        return batching.measure(MODEL, rounds=2, new_tokens=3, threads=(1, 2))
    finally:
        torch.set_num_threads(before)


def test_everything_is_measured_on_each_number_of_threads_against_the_same_lone_runs(
    rounds: dict[int, list[batching.Round]],
) -> None:
    assert {number: len(results) for number, results in rounds.items()} == {1: 2, 2: 2}
    for one, two in zip(*rounds.values(), strict=True):
        assert one.alone is two.alone
        assert [one.together.threads, two.together.threads] == [1, 2]


def test_what_ran_alone_is_the_quickest_of_its_runs() -> None:
    slow = batching.Served([], first_s=0.1, rest_s=1.0, step_s=2.0, threads=2)
    quick = replace(slow, step_s=1.0, threads=1)
    assert batching.quickest([slow, quick]) is batching.quickest([quick, slow]) is quick


def test_each_figure_is_there(rounds: dict[int, list[batching.Round]]) -> None:
    found = batching.summary("tiny", MODEL, rounds[2], 3)
    assert (found["threads"], found["alone_threads"] in (1, 2)) == (2, True)
    assert (found["sequences"], found["prompt_tokens"], found["new_tokens"], found["rounds"]) == (16, 512, 3, 2)
    ratios = [r.alone.step_s / r.together.step_s for r in rounds[2]]
    assert found["ratio_decode_together_vs_alone"] == pytest.approx(sum(ratios) / 2)
    shown = batching.table(found)
    assert len(list(shown.columns[0].cells)) == len(batching.COMPARISONS)
    assert f"alone: threads {found['alone_threads']}," in str(shown.caption)


def test_ways_that_choose_other_tokens_get_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    real = batching.serve_together

    def spoiled(*given):  # type: ignore[no-untyped-def]
        served = real(*given)
        served.tokens[5][-1] += 1
        return served

    monkeypatch.setattr(batching, "serve_together", spoiled)
    with pytest.raises(RuntimeError, match="the engine gives sequence 5 .* not reported"):
        batching.measure(MODEL, rounds=1, new_tokens=3, threads=(torch.get_num_threads(),))
