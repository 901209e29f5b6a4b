"""`course size` as a person meets it: the table, the JSON, files, memory, and wrong calls."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from course_command import as_json, call
from typer.testing import CliRunner

from course_lib.cli import app
from course_lib.sizing import model_names, preset, preset_config

LLAMA = ("size", "--model", "llama-3-8b", "--tokens", "8192", "--sequences", "8", "--dtype", "bf16")


def told(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    return " ".join(result.stdout.split())


def test_the_example_of_the_help_is_answered() -> None:
    found = as_json(*LLAMA)
    assert found["bytes"] == 8 * 8192 * 131_072
    assert found["per_sequence_bytes"] == 8192 * 131_072 and found["bytes_per_token"] == 131_072
    (layers,) = found["layers"]
    assert layers == {
        "kind": "full attention",
        "layers": 32,
        "n_kv_heads": 8,
        "n_kv_heads_on_rank": 8,
        "key_dim": 128,
        "value_dim": 128,
        "window": None,
        "key_dtype": "bf16",
        "value_dtype": "bf16",
        "slots_per_sequence": 8192,
        "bytes_per_slot": 4096,
        "scale_bytes_per_slot": 0,
        "bytes": 8 * 8192 * 131_072,
    }
    assert (found["gib"], found["gb"]) == (8.0, 8.589934592)


def test_the_table_names_both_units_and_what_is_left_out() -> None:
    text = told(*LLAMA)
    assert "8,589,934,592 B = 8.000 GiB = 8.590 GB" in text
    assert "32 full attention 8 128+128 8,192 4,096 8,589,934,592" in text
    for words in ("Left out", "weights", "Activations", "allocator", "bandwidth"):
        assert words in text


@pytest.mark.parametrize("name", model_names())
def test_every_model_known_by_name_is_answered_like_the_library(name: str) -> None:
    words = ("--encoder-tokens", "7") if name == "t5-base" else ()
    found = as_json("size", "--model", name, "--tokens", "5000", "--sequences", "3", *words)
    shape = preset(name)
    assert found["bytes"] == shape.bytes(5000, 3, encoder_tokens=7)
    assert found["bytes"] == sum(layers["bytes"] for layers in found["layers"])
    assert found["bytes_per_token_past_windows"] == shape.bytes_per_token(past_windows=True)
    assert found["assumptions"][: len(shape.assumptions)] == list(shape.assumptions)
    told("size", "--model", name, *words)


def test_a_config_file_and_a_folder_are_answered(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(preset_config("gemma-3-27b")))
    for place in (tmp_path, tmp_path / "config.json"):
        assert as_json("size", "--config", str(place), "--tokens", "131072")["bytes"] == 11_173_625_856
    text = told("size", "--config", str(tmp_path), "--tokens", "131072")
    assert "52 sliding window of 1,024" in text and "10 full attention" in text and "text_config" in text
    assert "81,920 B" in text, "what a token adds past the windows"
    assert "transformers 5.24 holds 11,173,199,872 B" in text


def test_blocks_ranks_and_types_change_the_bytes_and_are_told() -> None:
    found = as_json("size", "--model", "llama-3-8b", "--tokens", "17", "--block", "16", "--tp", "16")
    assert found["bytes"] == 32 * 32 * 1 * 256 * 2 and found["bytes_all_ranks"] == 16 * found["bytes"]
    assert found["layers"][0]["n_kv_heads_on_rank"] == 1 and found["bytes_in_transformers"] is None
    assert "copied" in " ".join(found["assumptions"])
    text = told("size", "--model", "llama-3-8b", "--tp", "2", "--dtype", "q8_0", "--value-dtype", "q4_0")
    assert "q8_0, values in q4_0, one of 2 ranks" in text and "4 of 8" in text
    assert as_json("size", "--model", "llama-3-8b", "--dtype", "q8_0")["bytes_per_token"] == 131_072 // 2 * 34 // 32


def test_what_falcon_40b_needs_and_what_is_stored_are_both_told() -> None:
    text = told("size", "--model", "falcon-40b", "--tokens", "1")
    assert "122,880 B" in text and "1,966,080 B" in text and "repeats the KV heads" in text


def test_memory_is_a_subtraction_that_is_shown() -> None:
    words = (*LLAMA, "--memory", "80GB", "--weights", "16GB", "--reserve", "10%")
    fit = as_json(*words)["fit"]
    assert fit == {
        "memory_bytes": 80 * 10**9,
        "weights_bytes": 16 * 10**9,
        "reserve_bytes": 8 * 10**9,
        "left_bytes": 56 * 10**9,
        "sequences": 52,
    }
    text = told(*words)
    for line in (
        "memory 80,000,000,000 B 74.506 GiB = 80.000 GB",
        "- weights 16,000,000,000 B",
        "- reserve 8,000,000,000 B",
        "= left for the cache 56,000,000,000 B",
        "/ each sequence 1,073,741,824 B",
        "= sequences that fit 52",
    ):
        assert line in text
    assert as_json(*LLAMA)["fit"] is None


def test_what_is_of_one_rank_and_what_transformers_cannot_hold() -> None:
    of_a_rank = "Memory, weights and reserve are taken as those of one rank"
    words = ("size", "--model", "gemma-2-2b", "--tokens", "9000", "--memory", "80GB", "--weights", "5GB")
    assert of_a_rank in told(*words, "--tp", "2") and of_a_rank not in told(*words)
    assert "transformers 5.24 holds" in told(*words) and "transformers 5.24" not in told(*words, "--dtype", "fp8")


def test_capital_letters_make_no_difference() -> None:
    found = as_json("size", "--model", "Llama-3-8B", "--dtype", "Q8_0")
    assert found["bytes"] == as_json("size", "--model", "llama-3-8b", "--dtype", "q8_0")["bytes"]
    assert found["model"] == "llama-3-8b"


def test_a_narrow_terminal_cuts_no_number_short() -> None:
    narrow = CliRunner(env={"COLUMNS": "30", "TERM": "dumb"})
    result = narrow.invoke(app, [*LLAMA, "--memory", "80GB"], prog_name="course")
    assert result.exit_code == 0 and "…" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 30


def test_what_does_not_fit_is_said() -> None:
    assert "The 8 that were asked for do not fit" in told(*LLAMA, "--memory", "4GiB", "--reserve", "1GiB")
    assert "alone are more than the memory" in told(*LLAMA, "--memory", "4GiB", "--weights", "16GB")
    assert "No --weights were given" in told(*LLAMA, "--memory", "80GB")


def test_more_tokens_than_the_model_knows_are_arithmetic_only() -> None:
    assert "knows 8,192 positions" in told("size", "--model", "llama-3-8b", "--tokens", "8193")
    assert "positions" not in told("size", "--model", "llama-3-8b", "--tokens", "8192")


WRONG_CALLS = {
    "no model": (["size"], "--model"),
    "two models": (["size", "--model", "gpt2", "--config", "x.json"], "one model"),
    "a model that is not known": (["size", "--model", "llama3-8b"], "llama-3-8b"),
    "a file that is not there": (["size", "--config", "nosuch.json"], "nosuch.json"),
    "a type that is not known": (["size", "--model", "gpt2", "--dtype", "int4"], "q4_0"),
    "a type that has no place": (["size", "--model", "gpt2", "--dtype", "fp8_ds_mla"], "latent"),
    "no encoder": (["size", "--model", "t5-base"], "--encoder-tokens"),
    "ranks that do not fit": (["size", "--model", "llama-3-8b", "--tp", "3"], "32 query heads"),
    "ranks that do not fit the query heads": (["size", "--model", "qwen2.5-7b", "--tp", "8"], "28 query heads"),
    "absurd tokens of an encoder": (["size", "--model", "t5-base", "--encoder-tokens", str(10**30)], "encoder-tokens"),
    "many digits of an encoder": (["size", "--model", "t5-base", "--encoder-tokens", "9" * 400], "encoder-tokens"),
    "negative tokens": (["size", "--model", "gpt2", "--tokens", "-1"], "tokens"),
    "absurd tokens": (["size", "--model", "gpt2", "--tokens", str(10**30)], "tokens"),
    "a unit that could be two": (["size", "--model", "gpt2", "--memory", "80G"], "GB or GiB"),
    "no memory": (["size", "--model", "gpt2", "--memory", "0GB"], "--memory"),
    "weights of no memory": (["size", "--model", "gpt2", "--weights", "1GB"], "--memory"),
    "a reserve of more than all": (["size", "--model", "gpt2", "--memory", "1GB", "--reserve", "101%"], "--reserve"),
    "sequences that keep nothing": (["size", "--model", "gpt2", "--tokens", "0", "--memory", "1GB"], "no bytes"),
    "JSON in no folder": (["size", "--model", "gpt2", "--json", "/nosuch/x.json"], "/nosuch"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_one_line_and_status_2(name: str) -> None:
    words, part = WRONG_CALLS[name]
    result = call(*words)
    assert result.exit_code == 2 and not result.stdout
    assert part in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


def test_a_damaged_config_is_one_line_that_names_the_field(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(preset_config("llama-3-8b") | {"num_key_value_heads": -8}))
    result = call("size", "--config", str(path))
    assert result.exit_code == 1 and "num_key_value_heads = -8" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_models_are_listed_with_their_bytes(tmp_path: Path) -> None:
    text = told("size", "--list")
    assert "llama-3-8b 131,072 32 full attention" in text
    found = as_json("size", "--list")["models"]
    assert [row["model"] for row in found] == model_names()
    assert call("size", "--list", "--json", str(tmp_path / "list.json")).exit_code == 0
    assert json.loads((tmp_path / "list.json").read_text())["models"] == found


def test_help_shows_an_example_and_fits_a_terminal() -> None:
    text = told("size", "--help")
    assert "Example: course size --model llama-3-8b" in text and re.search(r"--tp\b", text)


def test_the_command_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom course_lib.cli import main\nsys.argv = ['course', 'size', '--model', 'gpt2', '--json', '-']\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'transformers', 'gguf', 'ipywidgets'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == 4096 * 36_864
