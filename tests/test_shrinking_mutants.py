"""Each bug in a cache that forgets or rounds is made once in the library's own source, and a check fails for it."""

from types import ModuleType

import pytest
import torch
from engine_report import Record, report_mutant
from mutants import Mutant, load_engine
from mutants_of_shrinking import OF_SHRINKING
from oracle import oracle_logits
from shapes import SHAPES, TOLERANCE, difference, feed_in, model_of, text_of, weights_of
from test_codecs import by_hand, numbers
from test_mutants import BROKEN_DIFFERENTLY
from test_shrinking_caches import Forgetting

import course_lib.caches

SHAPE = "gqa"


def forgetting(caches: ModuleType) -> None:
    """A window of 5 tokens behind 2 first ones, in chunks: the logits are those of an oracle that forgets the same."""
    text = text_of(SHAPE, 14)
    expected = oracle_logits(SHAPES[SHAPE], weights_of(model_of(SHAPE)), text, Forgetting(5, 2).seen)
    cache = caches.ForgettingCache(SHAPES[SHAPE], 1, caches.Window(5, 2), torch.float64)
    got = feed_in(model_of(SHAPE), cache, 0, text, (3, 6, 1, 1, 1, 1, 1))
    apart = difference(got, torch.from_numpy(expected))
    assert apart <= TOLERANCE[torch.float64], f"{apart} from the oracle"


def rounding(caches: ModuleType) -> None:
    """Numbers come back as a loop in plain Python rounds them, with 1 to 8 bits each."""
    x = numbers(3, 8)
    for bits in range(1, 9):
        codec = caches.Integers(bits, 4)
        back = codec.decode(codec.encode(x), 8, torch.float64)
        assert difference(back, torch.from_numpy(by_hand(codec, x.numpy()))) < 1e-12, f"{bits} bits"


CHECKS = {"forgetting": forgetting, "rounding": rounding}


@pytest.mark.parametrize("mutant", OF_SHRINKING, ids=str)
def test_a_check_fails_for(mutant: Mutant, record_property: Record) -> None:
    with pytest.raises(Exception) as seen:
        CHECKS[mutant.seen_by](load_engine(mutant.changes).caches)
    assert not isinstance(seen.value, BROKEN_DIFFERENTLY), repr(seen.value)
    report_mutant(record_property, mutant.title, mutant.seen_by, "", "", "")


@pytest.mark.parametrize("check", CHECKS)
def test_the_library_passes(check: str) -> None:
    CHECKS[check](course_lib.caches)
