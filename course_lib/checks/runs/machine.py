"""A machine on which time is simulated, for benchmarks that can be judged: the same benchmark always measures the same.

The one idea: time passes only while work is done, and each piece of work takes what it was said to take. So what a
benchmark should report can be worked out by hand, and what it reports depends on its lines alone, not on whose computer
it runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


class Machine:
    """A machine with a language model on it, and a clock in seconds.

    A prefill takes `prefill_s`, and `prompt_token_s` more for each token of the prompts. A decode step takes `step_s`,
    `held_token_s` more for each token that was read before, and `far_token_s` more for each of these beyond the first
    `near_tokens`; the first one after the machine was started takes `first_s` more, unless it is `warm`. To hand over a
    step takes `launch_s`. `gaps_s` are the gaps between the tokens of `stream`, again and again from the first.

    None of these is an attribute, so that it has to be measured. That is a lock on a diary, not on a safe: Python lets
    code look into the closures and the callers of what it calls, and whoever does so reads what was to be measured.
    """

    now: Callable[[], float]
    prefill: Callable[[Sequence[Sequence[int]]], None]
    decode: Callable[[], None]
    launch: Callable[[], None]
    wait: Callable[[], None]
    stream: Callable[[Sequence[int], int], Iterator[int]]

    def __init__(
        self,
        prefill_s: float = 0.25,
        prompt_token_s: float = 0.001,
        step_s: float = 0.02,
        held_token_s: float = 0.0,
        far_token_s: float = 0.0,
        near_tokens: int = 0,
        first_s: float = 0.5,
        launch_s: float = 0.0005,
        gaps_s: Sequence[float] = (0.02,),
        clock_s: float = 1000.0,
        warm: bool = False,
    ) -> None:
        gaps_s, cold_s = tuple(gaps_s), 0.0 if warm else first_s
        held = 0  # tokens that were read
        done_s = clock_s  # when everything that was handed over is done

        def now() -> float:
            """The time, in seconds."""
            return clock_s

        def prefill(prompts: Sequence[Sequence[int]]) -> None:
            """Read some prompts, each a list of tokens, in one pass; return when that is done."""
            nonlocal clock_s, held
            wait()
            tokens = sum(len(prompt) for prompt in prompts)
            clock_s += prefill_s + prompt_token_s * tokens
            held += tokens

        def decode() -> None:
            """Make one more token; return when it is there."""
            launch()
            wait()

        def launch() -> None:
            """Hand over one decode step, and return at once. Steps are done one after the other."""
            nonlocal clock_s, done_s, held, cold_s
            far_s = far_token_s * max(0, held - near_tokens)
            done_s = max(done_s, clock_s) + step_s + held_token_s * held + far_s + cold_s
            clock_s += launch_s
            held, cold_s = held + 1, 0.0

        def wait() -> None:
            """Return when everything that was handed over is done."""
            nonlocal clock_s
            clock_s = max(clock_s, done_s)

        def stream(prompt: Sequence[int], new_tokens: int) -> Iterator[int]:
            """Read a prompt and yield new tokens, each at the moment at which it comes."""
            nonlocal clock_s
            prefill([prompt])
            for number in range(new_tokens):
                if number:
                    clock_s += gaps_s[(number - 1) % len(gaps_s)]
                yield 7 * number % 100

        self.now, self.prefill, self.decode = now, prefill, decode
        self.launch, self.wait, self.stream = launch, wait, stream


def run_benchmark(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What the benchmark `code` reports in each case of `inputs`: see `run_calls`. A call is {"machine": settings of a
    Machine, "busy": how many steps have been handed to it already, "given": the arguments after the machine}."""
    return run_calls(code, inputs, on_a_machine)


def on_a_machine(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    machine = Machine(**call["machine"])
    for _ in range(call["busy"]):
        machine.launch()
    return {"figure": as_plain(called(code, machine, *call["given"]), "the figure")}
