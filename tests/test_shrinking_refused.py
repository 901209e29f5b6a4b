"""What makes no sense of smaller caches and of their measures is refused with its value, before anything is computed.

The one idea: a wrong argument that gives a number all the same is worse than one that fails. Each call here once did,
or failed in the words of another library.
"""

from collections.abc import Callable
from math import nan

import pytest
import torch
from shapes import SHAPES, model_of

from course_lib.caches import ContiguousCache
from course_lib.caches.codecs import Floats, Integers
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import Window
from course_lib.caches.rounded import RoundedCache
from course_lib.latent import LatentAttention, LatentShape
from course_lib.quality import measures, recall

CONFIG = SHAPES["gqa"]
FOUR = Integers(4)
CACHES: dict[str, tuple[Callable[[], object], str]] = {
    "a number for a policy": (lambda: ForgettingCache(CONFIG, 1, 64), r"Window\(64\), not 64"),  # type: ignore[arg-type]
    "a kind of policy for one": (lambda: ForgettingCache(CONFIG, 1, Window), "not <class"),  # type: ignore[arg-type]
    "a codec for a policy": (lambda: ForgettingCache(CONFIG, 1, FOUR), "not Integers"),  # type: ignore[arg-type]
    "bits for a codec": (lambda: RoundedCache(CONFIG, 1, 8, 4, 4), r"Integers\(4\), not by 4"),  # type: ignore[arg-type]
    "a dtype for a codec": (
        lambda: RoundedCache(CONFIG, 1, 8, FOUR, torch.float16),  # type: ignore[arg-type]
        "not by torch.float16",
    ),
    "a policy for a codec": (lambda: RoundedCache(CONFIG, 1, 8, Window(4), FOUR), "by Window"),  # type: ignore[arg-type]
    "no capacity": (lambda: RoundedCache(CONFIG, 1, 0, FOUR, FOUR), "not 0 and 0"),
    "a negative residual": (lambda: RoundedCache(CONFIG, 1, 8, FOUR, FOUR, -1), "0 or more, not 8 and -1"),
    "half a residual": (lambda: RoundedCache(CONFIG, 1, 8, FOUR, FOUR, 0.5), "whole number"),  # type: ignore[arg-type]
    "text for a dtype": (lambda: Floats("float16"), "float16 is no float to store numbers in"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("make", "said"), CACHES.values(), ids=CACHES)
def test_what_is_no_policy_and_no_codec_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


# --- Latent attention

SHAPE = LatentShape(d_model=6, n_heads=2, head_dim=3, rotated_dim=4, latent_dim=5)
LAYER = LatentAttention(SHAPE)


def some(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


@pytest.mark.parametrize("theta", (0, -1.0, nan, "10000"))
def test_a_base_of_rotation_that_turns_nothing_into_a_number_is_refused(theta: float) -> None:
    with pytest.raises(ValueError, match=f"rope_theta must be a positive number, not {theta!r}"):
        LatentShape(**{**SHAPE.__dict__, "rope_theta": theta})


@pytest.mark.parametrize("way", (LAYER.expanded, LAYER.absorbed))
@pytest.mark.parametrize("held", (0, 2))
def test_tokens_that_were_not_appended_get_no_attention(way: Callable[..., torch.Tensor], held: int) -> None:
    with pytest.raises(ValueError, match=f"3 tokens ask, and the cache holds {held}: append them first"):
        way(some(1, 3, 6), some(1, held, 9))


@pytest.mark.parametrize("use", (LAYER.append, LAYER.expanded, LAYER.absorbed))
@pytest.mark.parametrize(
    ("x", "cache"), [((3, 6), (1, 3, 9)), ((1, 3, 5), (1, 3, 9)), ((1, 3, 6), (2, 3, 9)), ((1, 3, 6), (1, 3, 5))]
)
def test_tokens_and_a_cache_of_other_rows_or_shapes_are_refused(
    use: Callable[..., torch.Tensor], x: tuple[int, ...], cache: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"are \[B, T, 6\] and their cache is \[B, S, 9\], not"):
        use(some(*x), some(*cache))


# --- Measures

LOGITS = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))


def test_a_batch_is_no_text_whose_shares_could_be_above_one() -> None:
    texts = torch.zeros(2, 5, dtype=torch.long)
    assert measures.compare(LOGITS, LOGITS, texts).same_choice.value == 1
    with pytest.raises(ValueError, match=r"one entry is a text \[T\], not \[2, 5\]"):
        measures.compare([LOGITS], [LOGITS], [texts])


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int32, torch.int64))
def test_tokens_of_any_whole_dtype_are_judged_alike(dtype: torch.dtype) -> None:
    tokens = torch.tensor([[1, 2, 3, 4, 6], [0, 0, 5, 6, 1]])
    assert measures.nll(LOGITS, tokens.to(dtype)).equal(measures.nll(LOGITS, tokens))
    with pytest.raises(ValueError, match="do not judge torch.bool tokens"):
        measures.nll(LOGITS, tokens > 1)


@pytest.mark.parametrize("cache_of", (None, ContiguousCache))
def test_a_text_without_rows_is_not_read(cache_of: measures.CacheOf | None) -> None:
    with pytest.raises(ValueError, match=r"texts are \[rows, T\], not \[4\]: one text alone"):
        measures.read(model_of("gqa"), torch.zeros(4, dtype=torch.long), cache_of)


# --- Recall

QUESTIONS = recall.Recall(4, 4, 2).questions(4, 3, 2, seed=0)
ANSWERS = recall.Answers(QUESTIONS, torch.zeros(2, 3, 10), torch.ones(2, 3, dtype=torch.bool), 0)


@pytest.mark.parametrize("parts", (0, -1, 1.5))
def test_pairs_are_divided_into_at_least_one_part(parts: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 part, not {parts}|must be a whole number"):
        ANSWERS.by_depth(parts)


@pytest.mark.parametrize("which", (torch.ones(2, 3, dtype=torch.long), torch.ones(3, dtype=torch.bool)))
def test_answers_are_chosen_by_booleans_and_numbers_would_choose_rows(which: torch.Tensor) -> None:
    assert ANSWERS.rate(torch.zeros(2, 3, dtype=torch.bool)).asked == 0
    with pytest.raises(ValueError, match=r"booleans of shape \[2, 3\], not by torch"):
        ANSWERS.rate(which)


@pytest.mark.parametrize("chunk", (0, -1, 2.5))
@pytest.mark.parametrize("cache_of", (None, ContiguousCache))
def test_a_chunk_without_tokens_is_refused_and_not_taken_for_the_whole(
    chunk: int, cache_of: measures.CacheOf | None
) -> None:
    with pytest.raises(ValueError, match=f"at least one token, not {chunk}|must be a whole number"):
        recall.ask(model_of("gqa"), QUESTIONS, cache_of, chunk)
