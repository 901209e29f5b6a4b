"""Libraries with one bug in a cache that forgets or rounds: mistakes of courses that no other cache can make."""

from mutants import Mutant, at

OF_SHRINKING = (
    Mutant(
        11,
        "slots held are the position after an eviction",
        "forgetting",
        at(
            "caches.forgetting",
            (
                "self.positions, self.turn = self.true, None",
                "self.positions, self.turn = (held >= 0).sum(dim=1, keepdim=True) + new, None",
            ),
        ),
    ),
    Mutant(
        20,
        "a quantiser that is right for one bit width only",
        "rounding",
        at("caches.codecs", ("steps = x.shape[-1], 2**self.bits - 1", "steps = x.shape[-1], 2**8 - 1")),
    ),
)
