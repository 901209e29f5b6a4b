"""The runner of all stages: none may hide another's failure."""

import sys

import pytest
import run_all


def test_every_stage_of_the_tests_runs_and_one_failure_is_the_result(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = {
        name: [sys.executable, "-c", f"raise SystemExit({code})"] for name, code in {"a": 0, "b": 4, "c": 0}.items()
    }
    monkeypatch.setattr(run_all, "stages", lambda arguments: commands)
    assert run_all.main([]) == 1
    summary = [line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines()[-3:]]
    assert summary == [["a", "ok"], ["b", "FAILED (exit status 4)"], ["c", "ok"]]
    del commands["b"]
    assert run_all.main([]) == 0


def test_stages_are_style_types_tests_and_the_notebooks_that_there_are() -> None:
    stages = run_all.stages(["-k", "cache"])
    assert {"ruff check", "ruff format", "mypy", "weights", "pytest"} <= set(stages)
    assert stages["pytest"][-2:] == ["-k", "cache"]
    assert ("notebooks" in stages) == any((run_all.ROOT / "notebooks").glob("**/*.ipynb"))
