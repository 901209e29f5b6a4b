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
    and `held_token_s` more for each token that was read before; the first one after the machine was started takes
    `first_s` more, unless it is `warm`. To hand over a step takes `launch_s`. `gaps_s` are the gaps between the tokens
    of `stream`, again and again from the first.
    """

    def __init__(
        self,
        prefill_s: float = 0.25,
        prompt_token_s: float = 0.001,
        step_s: float = 0.02,
        held_token_s: float = 0.0,
        first_s: float = 0.5,
        launch_s: float = 0.0005,
        gaps_s: Sequence[float] = (0.02,),
        clock_s: float = 1000.0,
        warm: bool = False,
    ) -> None:
        self._prefill_s, self._prompt_token_s = prefill_s, prompt_token_s
        self._step_s, self._held_token_s, self._launch_s, self._gaps_s = step_s, held_token_s, launch_s, tuple(gaps_s)
        self._cold_s = 0.0 if warm else first_s
        self._held = 0  # tokens that were read
        self._clock_s = clock_s
        self._done_s = clock_s  # when everything that was handed over is done

    def now(self) -> float:
        """The time, in seconds."""
        return self._clock_s

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read some prompts, each a list of tokens, in one pass; return when that is done."""
        self.wait()
        tokens = sum(len(prompt) for prompt in prompts)
        self._clock_s += self._prefill_s + self._prompt_token_s * tokens
        self._held += tokens

    def decode(self) -> None:
        """Make one more token; return when it is there."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Hand over one decode step, and return at once. Steps are done one after the other."""
        step_s = self._step_s + self._held_token_s * self._held + self._cold_s
        self._done_s = max(self._done_s, self._clock_s) + step_s
        self._clock_s += self._launch_s
        self._held, self._cold_s = self._held + 1, 0.0

    def wait(self) -> None:
        """Return when everything that was handed over is done."""
        self._clock_s = max(self._clock_s, self._done_s)

    def stream(self, prompt: Sequence[int], new_tokens: int) -> Iterator[int]:
        """Read a prompt and yield new tokens, each at the moment at which it comes."""
        self.prefill([prompt])
        for number in range(new_tokens):
            if number:
                self._clock_s += self._gaps_s[(number - 1) % len(self._gaps_s)]
            yield 7 * number % 100


def run_benchmark(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What the benchmark `code` reports in each case of `inputs`: see `run_calls`. A call is {"machine": settings of a
    Machine, "busy": how many steps have been handed to it already, "given": the arguments after the machine}."""
    return run_calls(code, inputs, on_a_machine)


def on_a_machine(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    machine = Machine(**call["machine"])
    for _ in range(call["busy"]):
        machine.launch()
    return {"figure": as_plain(called(code, machine, *call["given"]), "the figure")}
