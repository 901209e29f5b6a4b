"""What benchmarks/serving.py works out, on a tiny model. How long anything takes is asserted nowhere."""

import pytest
import torch
from shapes import model_of

from benchmarks import serving

MODEL = model_of("mqa", torch.float32)


def test_both_schedulers_serve_the_same_requests_and_each_figure_is_there() -> None:
    found = serving.measure(MODEL, rounds=1, count=16)
    assert found["requests"] == 16 and found["new_tokens"] > 16
    assert 0 < found["scheduling_share"] < 1 and found["plan_s"] > 0
    tokens_per_s = found["continuous_new_tokens_per_s"] / found["static_new_tokens_per_s"]
    assert found["ratio_tokens_continuous_vs_static"] == pytest.approx(tokens_per_s)
    shown = serving.table({"model": "tiny"} | found)
    assert list(shown.columns[0].cells)[:2] == ["new tokens/s", "TTFT p50 (ms)"]


def test_schedulers_that_give_other_tokens_get_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    real = serving.serve

    def spoiled(model, scheduler, arrivals):  # type: ignore[no-untyped-def]
        run = real(model, scheduler, arrivals)
        if isinstance(scheduler, serving.StaticBatches):
            run.tokens["r3"][-1] += 1
        return run

    monkeypatch.setattr(serving, "serve", spoiled)
    with pytest.raises(SystemExit, match="nothing is reported"):
        serving.measure(MODEL, rounds=1, count=16)


def test_everybody_is_served_in_the_simulation() -> None:
    assert set(serving.simulated(200)) == set(serving.SIMULATED)
