"""The numbers in the questions of notebook 10, worked out by the contract and by generators."""

import torch
from test_sharing_quiz import number, words

from course_lib.noise import EPSILONS, tolerance

NOTEBOOK = "10_reproducibility"


def test_what_the_contract_allows_logits_of_24_in_bfloat16() -> None:
    largest, eps = 24, torch.finfo(torch.bfloat16).eps
    share = tolerance(torch.bfloat16)
    assert eps == 2**-7 and EPSILONS[torch.bfloat16] == 8
    traps = {share, eps * largest, EPSILONS[torch.float32] * eps * largest}
    assert number(NOTEBOOK, "allowed_in_bfloat16", traps=traps) == share * largest
    assert "2^-7" in words(NOTEBOOK, "allowed_in_bfloat16") and "8 · 2^-7 = 0.0625" in words(
        NOTEBOOK, "allowed_in_bfloat16"
    )
    assert share * largest > 1000 * tolerance(torch.float32) * largest  # a bug beyond all doubt there


def test_the_numbers_that_others_take_from_a_generator_before_the_fifth_token_of_row_1() -> None:
    shared, alone = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)
    numbers = torch.rand(20, generator=torch.Generator().manual_seed(7)).tolist()
    drawn: list[tuple[int, int, float]] = []  # step, row, number
    for step in range(5):
        drawn += [(step, row, float(torch.rand(1, generator=shared))) for row in range(3)]
    mine = next(value for step, row, value in drawn if (step, row) == (4, 1))
    before = numbers.index(mine)
    by_myself = [float(torch.rand(1, generator=alone)) for _ in range(5)]
    steps = len({step for step, _, _ in drawn})
    traps = {numbers.index(by_myself[4]), 3 * (steps - 1), len(drawn)}
    assert number(NOTEBOOK, "draws_before_mine", traps=traps) == before
    assert "4 · 3 = 12" in words(NOTEBOOK, "draws_before_mine") and mine != by_myself[4]
