"""What was acknowledged is there after kill -9 and among writers at once.

Each proof runs in a program of its own (`progress_crash.py`): real processes and real signals.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")


def proof(what: str, *numbers: int) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "progress_crash.py"), what, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HERE.parent)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_lose_no_acknowledged_answer() -> None:
    result = proof("kills", 200, 1)
    assert result["kills"] == 200
    assert result["lost"] == 0
    assert result["only_in_one_file"] == 0, "both files hold the same after each kill"
    assert result["notices"] == 0, "a kill damages nothing, so there is nothing to tell"
    assert result["left_over"] == 0, "nor is the folder littered"
    assert result["acknowledged"] > 100 and result["cut_off"] > 10, "otherwise nothing was in the middle of anything"


@pytest.mark.slow
def test_kills_of_two_writers_at_once_lose_nothing_and_neither_do_kills_on_a_disk() -> None:
    for numbers in ((40, 2), (12, 1, 1)):
        result = proof("kills", *numbers)
        assert result["lost"] == result["only_in_one_file"] == result["notices"] == 0
        assert result["cut_off"] > 0


def test_two_writers_at_once_both_finish_and_keep_their_order() -> None:
    result = proof("side_by_side", 2, 100)
    assert (result["events"], result["acknowledged"], result["ordered"]) == (200, 200, True)


@pytest.mark.slow
def test_repair_that_is_killed_is_done_by_the_next_and_loses_nothing() -> None:
    result = proof("kills_during_repair", 60)
    assert result["lost"] == 0
    assert result["cut_off"] > 5, "otherwise every repair was done before its kill"


def test_repair_that_is_killed_at_any_of_its_steps_loses_nothing() -> None:
    """Both files are damaged in different places, so each holds events that only the other one lacks: at no moment may
    one of them be without a file under its name."""
    result = proof("kills_at_each_step")
    assert result["lost"] == 0, f"a kill at step {result['steps']} did"
    assert result["steps"] > 20
