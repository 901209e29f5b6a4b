"""The figures of serving draw what the records say: who does what when, and what a load sweep measured."""

from collections.abc import Callable
from random import Random

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from course_lib.serving.arrivals import poisson
from course_lib.serving.load_metrics import Summary, Targets, summary
from course_lib.serving.record import Log, Outcome, Phase, Read, RequestRecord, StepRecord
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Continuous, Memory
from course_lib.serving.simulation import CostModel, simulate
from course_lib.serving.workload import Lengths, mix
from course_lib.study.serving_figures import (
    LOOKS,
    MOST_ROWS,
    queue_and_cache,
    states,
    sweep,
)
from course_lib.study.style import Picture


def step(begin: float, end: float, *reads: tuple[str, Phase], admitted: str = "", preempted: str = "") -> StepRecord:
    read = tuple(Read(name, 1, 1, phase) for name, phase in reads)
    return StepRecord(begin, end, read, tuple(admitted), tuple(preempted), 0, len(reads), 1, 4)


def record(name: str, arrival: float, tokens: list[float], ended: float | None, outcome: Outcome) -> RequestRecord:
    return RequestRecord(name, arrival, 2, 9, token_times_s=tokens, ended_s=ended, outcome=outcome)


A = record("a", 0.0, [4.0, 5.0], 5.0, "finished")
B = record("b", 1.0, [3.0, 8.0], 8.0, "finished")
B.preempted_s.append(4.0)
C, D = record("c", 2.0, [], 2.0, "refused"), record("d", 3.0, [], 6.0, "cancelled")
E = record("e", 6.5, [], None, "")
LOG = Log(
    (A, B, C, D, E),
    (
        step(0, 2, ("a", "prefill"), admitted="a"),
        step(2, 3, ("b", "prefill"), admitted="b"),
        step(3, 4, ("a", "prefill"), ("b", "decode")),
        step(4, 5, ("a", "decode"), preempted="b"),
        step(5, 6, ("b", "prefill"), admitted="b"),
        step(6, 7, ("b", "prefill")),
        step(7, 8, ("b", "decode")),
    ),
)


def test_every_state_is_a_bar_in_its_row_in_the_look_of_its_kind_cut_where_steps_end() -> None:
    (axes,) = states(LOG).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c", "d", "e"]
    assert bars(axes) == {
        (0, 0, 2, "prefill"), (0, 2, 3, "paused"), (0, 3, 4, "prefill"), (0, 4, 5, "decode"),
        (1, 1, 2, "waiting"), (1, 2, 3, "prefill"), (1, 3, 4, "decode"), (1, 4, 5, "preempted"), (1, 5, 6, "prefill"),
        (1, 6, 7, "prefill"), (1, 7, 8, "decode"), (3, 3, 6, "waiting"), (4, 6.5, 8, "waiting"),
    }  # fmt: skip
    assert len({(look.get("hatch"), height) for height, look in LOOKS.values()}) == len(LOOKS), "not by colour alone"
    marks = {(line.get_marker(), line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    assert marks == {("D", 2.0, 2), ("x", 6.0, 3)}, "who was refused and who left"


def bars(axes: Axes) -> set[tuple[float, ...]]:
    """Row, begin, end and kind of each bar."""
    drawn = set()
    for many in axes.collections:
        face, hatch = to_rgb(many.get_facecolor()[0]), many.get_hatch()
        kind = next(
            s for s, (_, look) in LOOKS.items() if (to_rgb(look["facecolor"]), look.get("hatch")) == (face, hatch)
        )
        for path in many.get_paths():
            (left, bottom), (right, top) = path.get_extents().get_points()
            drawn.add((round((bottom + top) / 2), float(left), float(right), kind))
    return drawn


def test_in_a_simulated_run_bars_fill_the_time_from_arrival_to_end_and_end_with_steps() -> None:
    requests = mix(20, 9, prompts=Lengths(20, 0.8, 60), answers=Lengths(8, 0.8, 30))
    log = simulate(Continuous(budget=6), Memory(4, 8), poisson(requests, 3.0), CostModel(0.03, 0.002))
    assert sum(len(request.preempted_s) for request in log.requests), "else this would prove less"
    names = [request.name for request in log.requests][5:12]
    drawn = bars(states(log, names=names).axes[0])
    for row, name in enumerate(names):
        mine = sorted(bar[1:] for bar in drawn if bar[0] == row)
        ends = [log[name].arrival_s, *(end for _, end, _ in mine)]
        assert [begin for begin, _, _ in mine] == pytest.approx(ends[:-1]) and ends[-1] == log[name].ended_s
        reading = {step.end_s for step in log.steps if any(read.name == name for read in step.reads)}
        assert {end for _, end, kind in mine if kind in ("prefill", "decode")} == reading


def test_the_text_says_what_each_request_did() -> None:
    told = states(LOG).alt
    assert "a: prefill 2.00 s, paused 1.00 s, prefill 1.00 s, decode 1.00 s, finished." in told
    assert "c: refused." in told and "e: waiting 1.50 s, still under way." in told


@pytest.mark.parametrize(
    ("now", "said"),
    [(3.5, "1 waiting, 1 prefill, 1 decode"), (4, "1 waiting, 1 decode, 1 preempted"), (0, "1 prefill"),
     (8, "nobody is here")],
)  # fmt: skip
def test_at_a_moment_there_is_a_line_and_how_many_do_what(now: float, said: str) -> None:
    figure = states(LOG, now)
    (axes,) = figure.axes
    assert axes.get_title(loc="left").endswith(f": {said}.") and f": {said}." in figure.alt
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "None"] == [now]


def test_every_moment_gives_a_picture_of_one_size() -> None:
    assert len({tuple(states(LOG, now).get_size_inches()) for now in (0, 3.5, 8)}) == 1
    assert states(LOG, 2).png()[:4] == b"\x89PNG"


def test_rows_can_be_chosen_and_keep_the_order_of_arrival() -> None:
    figure = states(LOG, 3.5, names=["d", "a"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "d"]
    assert "1 decode" in figure.alt, "everybody is counted, drawn or not"


def test_steps_too_short_to_be_seen_are_drawn_as_one() -> None:
    many = tuple(step(n / 10, (n + 1) / 10, ("a", "decode"), admitted="a" * (n == 0)) for n in range(1000))
    long, short = record("a", 0.0, [100.0], 100.0, "finished"), record("a", 0.0, [2.0], 2.0, "finished")
    assert bars(states(Log((long,), many)).axes[0]) == {(0, 0, 100, "decode")}
    assert len(bars(states(Log((short,), many[:20])).axes[0])) == 20


def test_a_run_in_which_nothing_happens_is_drawn_without_a_warning() -> None:
    assert "c: refused." in states(Log((C,), ())).alt


# --- Queue and cache


def height(bars: PolyCollection, moment: float) -> float:
    """How high a filled curve is at a moment, to a hundredth."""
    levels = [level / 100 for level in range(12001)]
    (path,) = bars.get_paths()
    return sum(bool(path.contains_point((moment, level + 0.005))) for level in levels[:12000]) / 100


def test_queue_and_cache_are_drawn_as_the_records_say() -> None:
    figure = queue_and_cache(LOG)
    above, below = figure.axes
    there, waiting = above.collections
    moments = (0.5, 1.5, 2.5, 3.5, 4.5, 6.25, 6.75)
    assert [height(there, moment) for moment in moments] == [1, 2, 2, 3, 3, 1, 2]
    assert [height(waiting, moment) for moment in moments] == [0, 1, 0, 1, 2, 0, 1]
    assert [height(below.collections[0], moment) for moment in moments] == [25] * 7
    assert figure.get_suptitle().splitlines() == [
        "Waiting: 0.812 on average, 2 at most.", "Cache: 25 % full on average, 25 % full at most."
    ]  # fmt: skip
    assert "Waiting: 0.812 on average" in figure.alt


def test_while_nobody_is_there_the_cache_is_drawn_empty() -> None:
    one, two = record("a", 0.0, [1.0], 1.0, "finished"), record("b", 3.0, [4.5], 4.5, "finished")
    steps = (
        step(0, 1, ("a", "prefill"), admitted="a"),
        step(3, 4, ("b", "prefill"), admitted="b"),
        step(4.2, 4.5, ("b", "prefill")),
    )
    held = queue_and_cache(Log((one, two), steps)).axes[1].collections[0]
    assert [height(held, moment) for moment in (0.5, 2.0, 3.5, 4.1)] == [25, 0, 25, 25]


# --- The load sweep


def runs(*rates: float, targets: Targets | None = None) -> dict[float, Summary]:
    requests = mix(40, 9, prompts=Lengths(20, 0.5, 60), answers=Lengths(8, 0.5, 20))
    logs = {
        rate: simulate(Continuous(), Memory(4, 40), poisson(requests, rate), CostModel(0.03, 0.001)) for rate in rates
    }
    return {rate: summary(log, targets) for rate, log in logs.items()}


def test_a_sweep_draws_what_was_measured_and_marks_where_no_more_can_be_done() -> None:
    measured = runs(1.0, 5.0, 30.0, 60.0, targets=Targets(0.5, 0.1))
    ttft, tpot, done = (axes for axes in sweep(measured).axes)
    most = max(run.finished_per_s for run in measured.values())  # type: ignore[type-var]
    every = list(measured.values())
    for axes, lines in (
        (ttft, {"p50": [run.ttft_s.p50 for run in every], "p99": [run.ttft_s.p99 for run in every]}),
        (tpot, {"p50": [run.tpot_over_requests_s.p50 for run in every],
                "p99": [run.tpot_over_requests_s.p99 for run in every]}),
        (done, {"all that come": [run.offered_per_s for run in every],
                "finished": [run.finished_per_s for run in every], "goodput": [run.goodput_per_s for run in every]}),
    ):  # fmt: skip
        drawn = {
            line.get_label(): list(line.get_ydata()) for line in axes.lines if not line.get_label().startswith("_")
        }
        assert drawn == lines
        assert [line.get_xdata()[0] for line in axes.lines if line.get_label().startswith("_")] == [most]
    assert ttft.get_yscale() == "log"
    assert sweep(measured).alt.startswith(f"No more than {most:.3g} requests/s finished")


def test_a_sweep_that_was_kept_up_with_marks_nothing_and_says_so() -> None:
    figure = sweep(runs(0.5, 1.0, 2.0))
    assert all(not line.get_label().startswith("_") for axes in figure.axes for line in axes.lines)
    assert (
        figure.alt.startswith("All that were let in were kept up with")
        and "goodput" not in figure.axes[2].get_legend_handles_labels()[1]
    )


def test_a_chosen_rate_has_its_numbers_above_the_picture_and_in_the_text() -> None:
    measured = runs(1.0, 60.0)
    figure = sweep(measured, 60.0)
    said = figure.get_suptitle().splitlines()
    assert said[1] == f"At 60 requests/s, {measured[60.0].finished_per_s:.3g} finished in a second."
    assert said[2].startswith("TTFT ") and all(line in figure.alt for line in said)
    assert all(60.0 in [line.get_xdata()[0] for line in axes.lines] for axes in figure.axes)


def test_refused_requests_are_no_sign_of_saturation() -> None:
    requests = [*mix(20, 9, prompts=Lengths(20, 0.5, 60), answers=Lengths(8, 0.5, 20)),
                *[Request((1,) * 999, 1, name=f"long{n}") for n in range(20)]]  # fmt: skip
    Random(0).shuffle(requests)
    logs = {
        rate: simulate(Continuous(), Memory(4, 40), poisson(requests, rate), CostModel(0.03)) for rate in (0.5, 1.0)
    }
    assert sweep({rate: summary(log) for rate, log in logs.items()}).alt.startswith("All that were let in were kept up")


def test_those_that_never_finished_are_told() -> None:
    measured = runs(1.0, 60.0)
    few = summary(Log((A, B, C, D, E), LOG.steps))
    assert "3 of 5 never did." in sweep({0.5: few, **measured}).alt


FEW = runs(1.0, 2.0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: queue_and_cache(Log((A,), ())), "no steps were recorded"),
        (lambda: states(LOG, 8.1), "8.1 s is not in this run: it goes from 0 s to 8 s"),
        (lambda: states(LOG, float("nan")), "nan s is not in this run"),
        (lambda: states(LOG, names=["a", "zoe"]), "no request 'zoe' in this run: it has a, b, c, d, e"),
        (lambda: states(LOG, names=[]), f"0 requests: draw 1 to {MOST_ROWS}, chosen with `names`"),
        (lambda: states(Log(tuple(record(f"r{n}", 0.0, [], None, "") for n in range(25)), ())), "25 requests"),
        (lambda: sweep({1.0: FEW[1.0]}), r"rates of \[1.0\]: draw at least two"),
        (lambda: sweep({2.0: FEW[2.0], 1.0: FEW[1.0]}), "the smallest first"),
        (lambda: sweep({0.0: FEW[2.0], 1.0: FEW[1.0]}), "above 0"),
        (lambda: sweep(FEW, 3.0), "3.0 requests/s is not among the rates"),
        (lambda: sweep({1.0: FEW[1.0], 2.0: summary(Log((C,), ()))}), "at 2.0 requests/s nobody waited"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call: Callable[[], Picture], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
