"""The first divergence: each kind of fault shows at the token, layer and part where it happens, and rounding does not.

Recorded numbers are compared with the oracle's formulas, never with another recording.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import rms_norm, rotated
from shapes import (
    DTYPES,
    SHAPES,
    TOLERANCE,
    bits,
    difference,
    feed,
    model_of,
    poisoned_cache,
    same_bits,
    text_of,
    truth,
    weights_of,
)

from course_lib.caches import Cache, ContiguousCache, Step
from course_lib.divergence import Divergence, Recorder, Trace, first_divergence, fresh, record
from course_lib.model import Transformer

TEXT = text_of("gqa", 12)
SMALL = 1e-10  # share of a token's largest number that rounding in float64 stays far below


def sequence(name: str, reused: int = 0) -> SimpleNamespace:
    """What a recorder reads of an engine's sequence."""
    return SimpleNamespace(name=name, preempted=0, reused=reused)


def read(
    model: Transformer, cache: Cache, texts: dict[int, Sequence[int]], passes: Sequence[dict[int, int]]
) -> dict[str, Trace]:
    """The traces of rows that read the next counts of their texts, pass by pass."""
    sequences, done = {row: sequence(f"row {row}") for row in texts}, dict.fromkeys(texts, 0)
    with record(model) as recorder:
        for counts in passes:
            feed(model, cache, {row: texts[row][done[row] : done[row] + count] for row, count in counts.items()})
            recorder.observe([sequences[row] for row in counts], list(counts.values()))
            done = {row: done[row] + counts.get(row, 0) for row in done}
    return recorder.traces


def found(model: Transformer, cache: Cache, chunks: Sequence[int], reference: Transformer) -> Divergence | None:
    """The first divergence of TEXT, read by `model` in these chunks, from a fresh pass of `reference`."""
    traces = read(model, cache, {0: TEXT}, [{0: chunk} for chunk in chunks])
    return first_divergence(traces["row 0"], fresh(reference, TEXT), SMALL)


class Changed(ContiguousCache):
    """A cache whose steps are changed by `change` before the model sees them."""

    def change(self, step: Step) -> None:
        raise NotImplementedError

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        step = super().open(rows, counts)
        self.change(step)
        return step


# --- What is recorded


@pytest.mark.parametrize("shape", SHAPES)
def test_the_recorded_output_of_the_last_layer_gives_the_oracles_logits(shape: str) -> None:
    model, text = model_of(shape), text_of(shape, 7)
    output = fresh(model, text).output
    assert output.shape == (7, SHAPES[shape].n_layers, SHAPES[shape].d_model)
    weights = weights_of(model)
    head = weights["embedding"] if SHAPES[shape].tied_head else weights["head"]
    eps = SHAPES[shape].norm_eps
    logits = np.array([head @ rms_norm(x, weights["final_norm"], eps) for x in output[:, -1].numpy()])
    assert difference(torch.from_numpy(logits), truth(shape, tuple(text))) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_recorded_keys_and_values_of_layer_0_are_the_oracles(shape: str) -> None:
    model, text, c = model_of(shape), text_of(shape, 5), SHAPES[shape]
    trace, weights = fresh(model, text), weights_of(model)
    for position, token in enumerate(text):
        x = rms_norm(weights["embedding"][token], weights["layers.0.attention_norm"], c.norm_eps)
        heads = (weights["layers.0.qkv"] @ x).reshape(-1, c.head_dim)
        keys = heads[c.n_heads : c.n_heads + c.n_kv_heads]
        keys = np.array([rotated(key, position, c.rope_theta, c.rope_factors) for key in keys])
        assert difference(trace.keys[position, 0], torch.from_numpy(keys)) < SMALL
        assert difference(trace.values[position, 0], torch.from_numpy(heads[c.n_heads + c.n_kv_heads :])) < SMALL


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_any_length_in_any_chunks_do_not_diverge(shape: str, dtype: torch.dtype) -> None:
    model = model_of(shape, dtype)
    texts = {0: text_of(shape, 9, 1), 2: text_of(shape, 4, 2), 1: text_of(shape, 6, 3)}
    passes = [{0: 5, 2: 1}, {1: 4, 0: 1}, {2: 2}, {0: 1, 1: 1, 2: 1}, {0: 2, 1: 1}]
    traces = read(model, poisoned_cache(model, 3, 12), texts, passes)
    for row, text in texts.items():
        trace = traces[f"row {row}"]
        assert trace.positions == tuple(range(len(text)))
        assert trace.keys.shape == (len(text), SHAPES[shape].n_layers, SHAPES[shape].n_kv_heads, SHAPES[shape].head_dim)
        assert first_divergence(trace, fresh(model, text), {torch.float64: SMALL, torch.float32: 3e-4}[dtype]) is None


def test_recording_changes_no_bit_and_leaves_nothing_behind() -> None:
    model = model_of("gqa")
    before = feed(model, None, {0: TEXT})[0]
    with record(model) as recorder:
        during = feed(model, None, {0: TEXT})[0]
    heard = recorder.last["output"]
    assert same_bits(bits(before), bits(during))
    feed(model, None, {0: TEXT[::-1]})
    assert recorder.last["output"] is heard
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_keys_are_recorded_as_they_were_handed_over_whatever_the_cache_does_with_them() -> None:
    class Spoils(Changed):
        def change(self, step: Step) -> None:
            store = step.store
            step.store = lambda layer, k, v: store(layer, k.mul_(2), v)

    model = model_of("gqa")
    divergence = found(model, Spoils(model.config, 1, 12, model.dtype), [12], model)
    assert (divergence.token, divergence.layer, divergence.parts) == (1, 0, ("output",))


def test_a_pass_that_fails_is_not_mixed_into_the_next() -> None:
    model = model_of("gqa")
    with record(model) as recorder:
        hook = model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            feed(model, None, {0: TEXT[:3]})
        hook.remove()
        feed(model, None, {0: TEXT})
    assert recorder.last["output"].shape == (1, 12, 3, 20)
    assert difference(recorder.last["output"][0], fresh(model, TEXT).output) == 0


# --- Counting the tokens of a sequence


def test_a_preempted_sequence_is_counted_from_the_start_and_a_reused_prefix_is_skipped() -> None:
    model, recorder_passes = model_of("gqa"), [(3, 0, 0), (2, 0, 0), (4, 1, 0), (1, 1, 0), (2, 2, 5)]
    reader = sequence("a", reused=2)
    with record(model) as recorder:
        for count, preempted, reused in recorder_passes:
            feed(model, None, {0: TEXT[:count]})
            reader.preempted, reader.reused = preempted, reused if preempted else 2
            recorder.observe([reader], [count])
    assert recorder.traces["a"].positions == (2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6)


def test_padding_is_not_recorded_and_a_row_without_tokens_has_no_trace() -> None:
    model = model_of("gqa")
    with record(model) as recorder:
        feed(model, None, {0: TEXT, 1: TEXT[:2], 2: []})
        recorder.observe([sequence("a"), sequence("b"), sequence("c")], [12, 2, 0])
    assert {name: trace.positions for name, trace in recorder.traces.items()} == {"a": tuple(range(12)), "b": (0, 1)}


def test_two_requests_of_one_name_are_refused() -> None:
    model = model_of("gqa")
    with record(model) as recorder:
        feed(model, None, {0: TEXT, 1: TEXT})
        with pytest.raises(ValueError, match="two requests are called 'a'"):
            recorder.observe([sequence("a"), sequence("a")], [12, 12])


# --- What is found


def test_another_token_shows_in_keys_and_values_of_layer_0() -> None:
    model = model_of("gqa")
    other = [*TEXT[:4], (TEXT[4] + 1) % 31, *TEXT[5:]]
    traces = read(model, ContiguousCache(model.config, 1, 12, model.dtype), {0: other}, [{0: 12}])
    divergence = first_divergence(traces["row 0"], fresh(model, TEXT), SMALL)
    assert (divergence.token, divergence.layer, divergence.part) == (4, 0, "keys")
    assert divergence.parts == ("keys", "values", "output")
    assert "another token was read" in str(divergence) and "token 4 of row 0, layer 0, keys" in str(divergence)


def test_a_wrong_position_shows_in_the_keys_of_layer_0_alone() -> None:
    class Shifted(Changed):
        def change(self, step: Step) -> None:
            step.positions, step.end = step.positions + (step.positions >= 5), 13

    model = model_of("gqa")
    divergence = found(model, Shifted(model.config, 1, 12, model.dtype), [12], model)
    assert (divergence.token, divergence.layer, divergence.part) == (5, 0, "keys")
    assert "values" not in divergence.parts and "another position" in divergence.meaning


def test_a_wrong_mask_shows_in_the_output_of_layer_0() -> None:
    class Open(Changed):
        def change(self, step: Step) -> None:
            step.mask = None

    model = model_of("gqa")
    divergence = found(model, Open(model.config, 1, 12, model.dtype), [1, 1, 1, 1, 4, 4], model)
    assert (divergence.token, divergence.layer, divergence.parts) == (4, 0, ("output",))
    assert "the mask is wrong, or what lies in the cache" in str(divergence)


@pytest.mark.parametrize("layer", range(3))
@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_wrong_memory_shows_in_the_output_of_its_layer_and_nan_always_counts(layer: int, value: float) -> None:
    class Forgetful(Changed):
        def change(self, step: Step) -> None:
            if self.lengths[0] == 7:
                self.values[layer, 0, :, 3] = value

    model = model_of("gqa")
    divergence = found(model, Forgetful(model.config, 1, 12, model.dtype), [7, 5], model)
    assert (divergence.token, divergence.layer, divergence.parts) == (7, layer, ("output",))
    assert (divergence.difference == torch.inf) == (value != 0)


def test_the_weights_of_another_layer_show_in_keys_and_values_of_the_layer_that_uses_them() -> None:
    wrong = Transformer(SHAPES["gqa"]).double().requires_grad_(False)
    wrong.load_state_dict(model_of("gqa").state_dict())
    wrong.layers[2] = wrong.layers[1]
    divergence = found(wrong, ContiguousCache(wrong.config, 1, 12, wrong.dtype), [12], model_of("gqa"))
    assert (divergence.token, divergence.layer, divergence.part) == (0, 2, "keys")
    assert "layer 2 does not use its own weights" in divergence.meaning


def test_the_first_of_several_readings_of_a_position_that_differs_is_reported() -> None:
    model = model_of("gqa")
    right = fresh(model, TEXT)
    again = Trace("a", (*range(12), *range(12)), *(torch.cat([t, t]) for t in (right.keys, right.values, right.output)))
    assert first_divergence(again, right, SMALL) is None
    again.values[12 + 3, 1] += 1
    divergence = first_divergence(again, right, SMALL)
    assert (divergence.token, divergence.layer, divergence.part) == (3, 1, "values")


def test_a_difference_is_a_share_of_the_tokens_largest_number() -> None:
    model = model_of("gqa")
    right = fresh(model, TEXT)
    shifted = Trace("", right.positions, right.keys, right.values, right.output.clone())
    largest = right.output[6, 1].abs().max()
    shifted.output[6, 1, 0] += 1e-3 * largest
    divergence = first_divergence(shifted, right, 0.9e-3)
    assert (divergence.token, divergence.layer, divergence.part) == (6, 1, "output")
    assert divergence.difference == pytest.approx(1e-3)
    assert first_divergence(shifted, right, 1.1e-3) is None


def test_what_is_zero_in_both_is_no_difference() -> None:
    right = fresh(model_of("gqa"), TEXT)
    nothing = Trace("", right.positions, right.keys, torch.zeros_like(right.values), right.output)
    assert first_divergence(nothing, nothing) is None


def test_a_text_that_the_model_cannot_read_has_no_trace() -> None:
    with pytest.raises(ValueError, match="the text holds token 99, the model has 0 to 30"):
        fresh(model_of("gqa"), [1, 99])


def test_a_reference_that_is_too_short_is_refused() -> None:
    model = model_of("gqa")
    with pytest.raises(ValueError, match="token 9 was read, but the reference has 9 tokens"):
        first_divergence(fresh(model, TEXT), fresh(model, TEXT[:9]))


def test_traces_of_nothing_are_none() -> None:
    assert Recorder().traces == {}
