"""Runs a learner's `read_config(config)` on some configs and writes down what came back.

The one idea: it only feeds and watches. The config is copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"config": {field: value}}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    config = deepcopy(call["config"])
    layers = as_plain(called(code, config), "the layers")
    return {"layers": layers, "config": as_plain(config, "the config")}
