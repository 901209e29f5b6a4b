"""The figures of speculative decoding show each guess with its fate, and say it in words."""

from collections.abc import Callable

import pytest
import test_figures as rules

from course_lib.quality.measures import Rate
from course_lib.speculative import Round, speed_up
from course_lib.study import style
from course_lib.study.speculative_figures import drafts, likelihoods, speed_ups
from course_lib.study.style import Picture

WORDS = [" significant", "$x^{$", "\n", "", " a_b^{c", "<|im_end|>", " the", " soup"]


def word(token: int) -> str:
    return WORDS[token]


def one(drafted: tuple[int, ...], accepted: int, tokens: tuple[int, ...]) -> Round:
    return Round(drafted, accepted, tokens, 0, 0.0, 0.0)


ROUNDS = [one((), 0, (0,)), one((1, 2, 3, 4), 4, (1, 2, 3, 4, 5)), one((6, 7, 0, 1), 1, (6, 2)), one((3,), 1, (3,))]
SAID = {"the model": [0.5, 0.3, 0.2], "the draft": [0.1, 0.2, 0.7]}
COUNTED = {"with a draft": [Rate(50, 100), Rate(31, 100), Rate(19, 100)]}


def all_figures() -> dict[str, Picture]:
    """Each kind, with ordinary numbers and with those at the edges."""
    widest = tuple(token % 8 for token in range(8))
    return {
        "drafts": drafts(ROUNDS, word),
        "drafts, prefill": drafts(ROUNDS[:1], word),
        "drafts, most": drafts([one(widest, row % 9, (*widest[: row % 9], 0)) for row in range(14)], word),
        "speed-ups": speed_ups(4, 0.7, 0.1, 0.05),
        "speed-ups, nothing right": speed_ups(16, 0.0, 1.0, 1.0),
        "speed-ups, all right": speed_ups(1, 1.0, 0.0, 0.0),
        "likelihoods": likelihoods(["soup", "rice", "fish"], SAID, COUNTED),
        "likelihoods, many": likelihoods(
            list("abcdefgh"),
            {name: [0.125] * 8 for name in ("the model", "the draft", "both")},
            {name: [Rate(1, 8)] * 8 for name in ("with a draft", "taken unjudged")},
        ),
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return all_figures()


@rules.layout_rules
def test_the_figures_keep_to_the_rules_of_all(rule: Callable[..., None], pictures: dict[str, Picture]) -> None:
    rule(pictures)


def test_each_guess_has_the_look_of_its_fate_and_a_refused_one_is_struck_out() -> None:
    figure = drafts(ROUNDS, word)
    (axes,) = figure.axes
    boxes = {}
    for patch in axes.patches:
        boxes.setdefault(round(patch.get_y() + 0.4), []).append((patch.get_facecolor(), patch.get_linestyle()))
    accepted, own = boxes[1][0], boxes[1][-1]
    assert boxes[0] == [own] and boxes[1] == [accepted] * 4 + [own] and boxes[3] == [accepted]
    assert boxes[2][0] == accepted and boxes[2][2] == boxes[2][3] and boxes[2][-1] == own
    assert len({*boxes[2]}) == 4, "four fates, four looks"
    (struck,) = axes.lines
    assert list(struck.get_xdata()) == [1.1, 1.9] and min(struck.get_ydata()) > 1.5
    assert "Prefill: ' significant'." in figure.alt and "Pass 2, 4 guesses, 1 accepted: ' the', '\\n'." in figure.alt


def test_what_is_drawn_of_a_gain_is_what_the_formula_says() -> None:
    figure = speed_ups(3, 0.6, 0.1, 0.05)
    (axes,) = figure.axes
    assert list(axes.lines[0].get_ydata()) == [speed_up(0.6, K, 0.1, 0.05) for K in range(1, 17)]
    assert axes.collections[0].get_offsets().tolist() == [[3, speed_up(0.6, 3, 0.1, 0.05)]]
    assert f"K = 3: {speed_up(0.6, 3, 0.1, 0.05):.2f} times the tokens per second, faster" in figure.alt
    assert "per second, slower" in speed_ups(8, 0.1, 0.5, 0.0).alt
    assert "neither gain nor loss; the best K is 1" in speed_ups(2, 1.0, 1.0, 0.0).alt


def test_shares_stand_with_their_intervals_and_their_words() -> None:
    figure = likelihoods(["soup", "rice", "fish"], SAID, COUNTED)
    (axes,) = figure.axes
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([50, 30, 20])
    marks, _, (bars,) = axes.containers[-1]
    assert list(marks.get_ydata()) == [50, 31, 19]
    for segment, rate in zip(bars.get_segments(), COUNTED["with a draft"], strict=True):
        assert segment[:, 1] == pytest.approx([100 * end for end in rate.interval])
    assert "the draft: soup 10.0 %, rice 20.0 %, fish 70.0 %." in figure.alt and str(Rate(31, 100)) in figure.alt


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: drafts([], word), "0 rounds of up to 0 guesses: draw 1 to 14 of up to 8"),
        (lambda: drafts(ROUNDS * 4, word), "16 rounds of up to 4 guesses"),
        (lambda: drafts([one((0,) * 9, 0, (1,))], word), "1 rounds of up to 9 guesses"),
        (lambda: speed_ups(17, 0.5, 0.1, 0.1), "17 guesses: choose 1 to 16"),
        (lambda: likelihoods([], {}, {}), "0 tokens, 0 bars and 0 marks are not for one picture"),
        (lambda: likelihoods(["a"], SAID, {}), "the model: 3 numbers for 1 tokens"),
        (lambda: likelihoods(["a", "b"], {}, COUNTED), "with a draft: 3 numbers for 2 tokens"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call: Callable[[], Picture], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_same_data_give_the_same_picture() -> None:
    first, again = (drafts(ROUNDS, word) for _ in range(2))
    assert first.png() == again.png() and first.get_figwidth() == style.WIDTH
