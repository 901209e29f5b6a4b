"""The same logits as `transformers` gives for the same weights, in every shape that the course uses.

Two programs by different people agree here; the oracle of this course says why both are right. The weights are random
and are put into both models by the code below, not by the library's loader.
"""

from dataclasses import dataclass, replace
from math import pi

import pytest
import torch
from engine_report import Record, report_difference
from shapes import difference, feed, feed_in, poisoned_cache
from torch import Tensor

from course_lib.model import ModelConfig, Transformer

transformers = pytest.importorskip("transformers", minversion="5.0")
from benchmarks.peers import peer_config  # noqa: E402


@dataclass(frozen=True)
class Scaling:
    """The numbers of Llama 3.1's long-context scaling, as its config.json names them."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 64

    def factors(self, theta: float, head_dim: int) -> tuple[float, ...]:
        """By how much each rotation is slowed down: not at all if its wave is short, by `factor` if it is long, and
        between the two in between (The Llama 3 Herd of Models, and the published code of Llama 3.1).
        """
        out = []
        for i in range(head_dim // 2):
            turns = self.original_max_position_embeddings * theta ** (-2 * i / head_dim) / (2 * pi)
            share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
            share = min(max(share, 0.0), 1.0)  # 1: a short wave, left alone
            out.append(1 / ((1 - share) / self.factor + share))
        return tuple(out)


PLAIN = ModelConfig(61, 2, 32, 4, 4, 8, 48, max_positions=128)
SHAPES: dict[str, tuple[ModelConfig, Scaling | None]] = {
    "one head each, tied": (PLAIN, None),
    "grouped, untied": (replace(PLAIN, n_kv_heads=2, tied_head=False, norm_eps=1e-6), None),
    "grouped, wide heads": (replace(PLAIN, n_heads=8, n_kv_heads=2, head_dim=12, rope_theta=1e5), None),
    "grouped, narrow heads, untied": (replace(PLAIN, n_kv_heads=2, head_dim=4, tied_head=False), None),
    "one head for all": (replace(PLAIN, n_kv_heads=1), None),
    "long-context scaling": (replace(PLAIN, n_kv_heads=2, head_dim=16, rope_theta=500.0), Scaling()),
}

# transformers computes norms and rotations in float32 whatever the dtype, so float64 logits of a right model, which are
# of size 1 here, lie some 1e-7 apart; in float32 both round, each in its own order.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}


def pair(name: str, dtype: torch.dtype) -> tuple[Transformer, torch.nn.Module]:
    """Our model and theirs, with the same random weights."""
    config, scaling = SHAPES[name]
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    if scaling is not None:
        config = replace(config, rope_factors=scaling.factors(config.rope_theta, config.head_dim))
        rope |= {"rope_type": "llama3", **vars(scaling)}
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(peer_config(config, rope))
    for parameter_name, parameter in theirs.named_parameters():
        scale = 0.5 / parameter.shape[-1] ** 0.5
        parameter.data = 1 + 0.3 * torch.randn_like(parameter) if "norm" in parameter_name else (
            scale * torch.randn_like(parameter)
        )  # fmt: skip
    theirs.tie_weights()
    ours = Transformer(config)
    ours.load_state_dict(converted(theirs.state_dict(), config))
    return ours.to(dtype).requires_grad_(False), theirs.to(dtype).requires_grad_(False).eval()


def converted(state: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Their weights under our names."""
    out = {"embedding": state["model.embed_tokens.weight"], "final_norm": state["model.norm.weight"]}
    if not config.tied_head:
        out["head"] = state["lm_head.weight"]
    for i in range(config.n_layers):
        layer = {name.removeprefix(f"model.layers.{i}."): value for name, value in state.items()}
        attention, mlp = "self_attn.{}_proj.weight", "mlp.{}_proj.weight"
        out |= {
            f"layers.{i}.attention_norm": layer["input_layernorm.weight"],
            f"layers.{i}.qkv": torch.cat([layer[attention.format(part)] for part in "qkv"]),
            f"layers.{i}.attention_out": layer[attention.format("o")],
            f"layers.{i}.mlp_norm": layer["post_attention_layernorm.weight"],
            f"layers.{i}.gate_up": torch.cat([layer[mlp.format(part)] for part in ("gate", "up")]),
            f"layers.{i}.down": layer[mlp.format("down")],
        }
    return out


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_logits_equal_those_of_transformers(name: str, dtype: torch.dtype, record_property: Record) -> None:
    ours, theirs = pair(name, dtype)
    text = torch.randint(ours.config.vocab_size, (64,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = theirs(text[None], use_cache=False).logits[0]  # [T, V]
    assert expected.dtype == dtype and expected.std() > 0.3, "logits that differ enough for a comparison"
    ways = {
        "full pass": feed(ours, None, {0: text.tolist()})[0],
        "cached": feed_in(ours, poisoned_cache(ours, 1, 128), 0, text.tolist(), (30, 1, 17, *(1,) * 16)),
    }
    for way, got in ways.items():
        apart = difference(got, expected)
        report_difference(record_property, f"{way}, transformers", dtype, apart)
        assert apart <= TOLERANCE[dtype], way


@pytest.mark.parametrize("name", ["grouped, wide heads", "long-context scaling"])
def test_ragged_rows_equal_a_right_padded_batch_of_transformers(name: str) -> None:
    ours, theirs = pair(name, torch.float64)
    texts = {row: list(range(1 + row, 1 + row + length)) for row, length in enumerate((9, 3, 14))}
    padded, real = torch.zeros(3, 14, dtype=torch.long), torch.zeros(3, 14, dtype=torch.long)
    for row, text in texts.items():
        padded[row, : len(text)], real[row, : len(text)] = torch.tensor(text), 1
    with torch.inference_mode():
        expected = theirs(padded, attention_mask=real).logits
    for row, got in feed(ours, poisoned_cache(ours, 3, 14), texts).items():
        assert difference(got, expected[row, : len(got)]) <= TOLERANCE[torch.float64], f"row {row}"


@pytest.mark.parametrize("name", ["grouped, untied", "one head for all"])
def test_greedy_tokens_equal_those_of_generate(name: str) -> None:
    from course_lib.generation import generate

    ours, theirs = pair(name, torch.float64)
    prompt = [5, 17, 2, 40, 9]
    with torch.inference_mode():
        expected = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=30, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    assert generate(ours, prompt, max_new_tokens=30).tokens == tuple(expected[0, 5:].tolist())


def test_the_slowing_of_rotations_is_that_of_transformers() -> None:
    """Their formula against the one above, for the published numbers of Llama 3.1 and for ours."""
    for theta, head_dim, scaling in (
        (500_000.0, 128, Scaling(8.0, 1.0, 4.0, 8192)),
        (500_000.0, 64, Scaling(32.0, 1.0, 4.0, 8192)),
        (500.0, 16, Scaling()),
    ):
        config = transformers.LlamaConfig(
            hidden_size=2 * head_dim,
            num_attention_heads=2,
            head_dim=head_dim,
            max_position_embeddings=131_072,
            rope_parameters={"rope_type": "llama3", "rope_theta": theta, **vars(scaling)},
        )
        theirs, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        plain = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        ours = plain / torch.tensor(scaling.factors(theta, head_dim), dtype=torch.float64)
        assert theirs.shape == ours.shape == (head_dim // 2,)
        assert ((theirs.double() - ours) / ours).abs().max() < 1e-6  # theirs is float32
        assert len(set(scaling.factors(theta, head_dim))) > 2, "short, long and middle waves all occur"
