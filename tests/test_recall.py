"""The recall task and its model: the questions by a slow count, the trained models through each cache, the training."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib.caches import Cache, ContiguousCache, PagedCache
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import Window
from course_lib.checkpoints import CheckpointError, random_model
from course_lib.model import ModelConfig
from course_lib.quality.recall import FOLDER, KINDS, TASK, Questions, Recall, ask, by_load, checkpoint_bytes, load
from course_lib.quality.train import main, shape, training

SMALL = Recall(32, 32, 4)
CALLS = {
    "plain": (SMALL, {"pairs": 12, "queries": 12}),
    "one pair": (SMALL, {"pairs": 1, "queries": 1}),
    "all keys": (SMALL, {"pairs": 32, "queries": 5}),
    "filler": (SMALL, {"pairs": 6, "queries": 3, "filler": 40}),
    "restated": (Recall(32, 2), {"pairs": 20, "queries": 10, "restated": 10}),
    "everything": (TASK, {"pairs": 64, "queries": 20, "filler": 30, "restated": 7, "again": True}),
}


@pytest.mark.parametrize(("task", "call"), CALLS.values(), ids=CALLS)
def test_questions_are_what_a_patient_reader_finds_in_the_text(task: Recall, call: dict[str, int]) -> None:
    q = task.questions(rows=30, seed=1, **call)
    pairs, queries, filler, restated = (call.get(name, 0) for name in ("pairs", "queries", "filler", "restated"))
    assert (q.context, q.pairs, q.tokens.shape) == (2 * pairs + filler, pairs, (30, 2 * pairs + filler + 2 * queries))
    for row, text in enumerate(q.tokens.tolist()):
        stated: dict[int, list[tuple[int, int, int]]] = {}  # of each key: number of the pair, place and value
        number = nothing = at = 0
        while at < q.context:
            if text[at] < task.keys:
                assert task.keys <= text[at + 1] < task.keys + task.values
                stated.setdefault(text[at], []).append((number, at + 1, text[at + 1]))
                number, at = number + 1, at + 2
            else:
                assert task.keys + task.values <= text[at] < task.vocabulary
                nothing, at = nothing + 1, at + 1
        assert (number, nothing, len(stated)) == (pairs, filler, pairs - restated)
        asked = text[q.context :: 2]
        assert len(set(asked)) == queries or call.get("again")
        for i, key in enumerate(asked):
            *before, (depth, place, value) = stated[key]
            assert text[q.context + 2 * i + 1] == value
            assert (q.depth[row, i], q.place[row, i], q.answer[row, i]) == (depth, place, value)
            assert q.outdated[row, i] == (before[0][2] if before else -1) != value


def test_every_pair_and_every_place_is_asked_for() -> None:
    q = SMALL.questions(8, 2, 400, seed=0, filler=3)
    assert set(q.depth.unique().tolist()) == set(range(8))
    assert set(q.place.unique().tolist()) == set(range(1, 19))
    share = torch.bincount(q.depth.flatten(), minlength=8) / q.depth.numel()
    assert (share - 1 / 8).abs().max() < 0.05


def test_the_seed_decides_the_questions() -> None:
    first, again, other = (SMALL.questions(8, 4, 3, seed=seed).tokens for seed in (5, 5, 6))
    assert torch.equal(first, again) and not torch.equal(first, other)


REFUSED = {
    "no pair": ({"pairs": 0}, "there must be a pair, a question and a row"),
    "no question": ({"queries": 0}, "0 questions"),
    "no row": ({"rows": 0}, "0 rows"),
    "more questions than keys": ({"pairs": 3, "queries": 4}, "4 questions to 3 keys: each is asked once"),
    "more keys than there are": ({"pairs": 33}, "33 different keys, but there are 32"),
    "less than no filler": ({"filler": -1}, "-1 filler tokens"),
    "restated more often than stated": ({"restated": 5}, "at most each second pair restated"),
    "half a pair": ({"pairs": 2.5}, "pairs must be a whole number"),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_texts_that_cannot_be_are_refused_in_words(change: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SMALL.questions(**{"pairs": 8, "queries": 4, "rows": 2, "seed": 0} | change)


@pytest.mark.parametrize("task", [{"keys": 0}, {"values": 1}, {"fillers": 0}, {"keys": 1.5}])
def test_a_vocabulary_without_keys_values_or_fillers_is_refused(task: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Recall(**task)


# --- The trained models


def contiguous(config: ModelConfig, rows: int, capacity: int) -> Cache:
    return ContiguousCache(config, rows, capacity)


def paged(config: ModelConfig, rows: int, capacity: int) -> Cache:
    return PagedCache(config, rows, rows * -(-capacity // 16))


@pytest.fixture(scope="module")
def questions() -> Questions:
    return TASK.questions(64, 16, 16, seed=1000)


@pytest.mark.parametrize("kind", KINDS)
def test_the_trained_model_answers_64_pairs_without_a_fault_through_each_cache(kind: str, questions: Questions) -> None:
    model = load(kind)
    whole = ask(model, questions)
    assert whole.rate().share > 0.99
    for cache_of in (contiguous, paged):
        through = ask(model, questions, cache_of)
        assert torch.equal(through.said, whole.said)
        assert torch.allclose(through.logits, whole.logits, atol=1e-3)
        assert through.held.all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_fewer_pairs_and_older_and_newer_ones_alike(kind: str) -> None:
    found = by_load(load(kind), (2, 8, 32), rows=16)
    assert all(answers.rate().share > 0.99 for answers in found.values())
    assert all(rate.share > 0.95 for _, rate in found[32].by_depth(4))


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_values_it_mostly_says_the_newer_and_else_the_older(kind: str) -> None:
    answers = ask(load(kind), TASK.questions(32, 16, 32, seed=1001, restated=16))
    q = answers.questions
    assert (q.outdated >= 0).all()  # every key was stated twice
    assert answers.rate().share > 0.8
    newer, older = answers.right.sum(), (answers.said == q.outdated).sum()
    assert newer + older > 0.98 * q.answer.numel()  # where it is wrong, it says what was true before


def test_the_kinds_differ_in_their_kv_heads_and_so_in_the_bytes_of_their_caches(questions: Questions) -> None:
    models = {kind: load(kind) for kind in KINDS}
    assert {kind: model.config.n_kv_heads for kind, model in models.items()} == {"mha": 4, "gqa": 2, "mqa": 1}
    few = TASK.questions(8, 2, 3, seed=0)
    used = {kind: ask(model, few, contiguous).used_bytes for kind, model in models.items()}
    tokens = 3 * few.tokens.shape[1]
    assert used == {kind: tokens * 2 * 2 * heads * 32 * 4 for kind, heads in (("mha", 4), ("gqa", 2), ("mqa", 1))}


def test_chunks_of_the_prompt_change_nothing(questions: Questions) -> None:
    model = load()
    whole, chunked = ask(model, questions, contiguous), ask(model, questions, contiguous, chunk=7)
    assert torch.allclose(whole.logits, chunked.logits, atol=1e-3)


def test_what_a_window_dropped_is_told_from_what_it_holds(questions: Questions) -> None:
    def half(config: ModelConfig, rows: int, capacity: int) -> Cache:
        return ForgettingCache(config, rows, Window(64))

    answers = ask(load(), questions, half)
    asked_at = questions.context + 2 * torch.arange(16)  # where the key of each question stands
    assert torch.equal(answers.held, questions.place >= asked_at + 1 - 64)
    assert answers.rate(answers.held).share > 0.8
    assert answers.rate(~answers.held).share < 0.1
    assert answers.used_bytes < ask(load(), questions, contiguous).used_bytes / 2


def test_depths_are_parts_of_the_pairs_from_the_oldest_on(questions: Questions) -> None:
    answers = ask(load(), questions, lambda config, rows, _: ForgettingCache(config, rows, Window(80)))
    parts = answers.by_depth(5)
    assert [number for part, _ in parts for number in part] == list(range(64))
    assert sum(rate.asked for _, rate in parts) == answers.rate().asked == 256
    assert sum(rate.right for _, rate in parts) == answers.rate().right
    assert parts[0][1].share < 0.2 < 0.8 < parts[-1][1].share
    assert answers.by_depth(100)[-1][0] == range(63, 64)


# --- Files


@pytest.mark.parametrize("name", KINDS.values())
def test_each_checkpoint_is_small_and_has_its_training_curve_beside_it(name: str) -> None:
    path = FOLDER / f"{name}.safetensors"
    assert path.stat().st_size < 2_000_000
    record = json.loads(path.with_suffix(".json").read_text())
    model = load(path)
    assert record["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert record["kv_heads"] == model.config.n_kv_heads
    curve = record["curve"]
    assert [point["step"] for point in curve] == list(range(10, record["steps"] + 1, 10))
    assert curve[0]["pairs"] == 2 and curve[-1]["pairs"] == 64
    assert curve[0]["loss"] > 3 and curve[-1]["loss"] < 0.1
    assert record["right_by_pairs"]["64"]["right"] > 0.99 * record["right_by_pairs"]["64"]["asked"]


def test_a_saved_model_comes_back_rounded_to_16_bits(tmp_path: Path) -> None:
    model = random_model(shape(2, SMALL, 16))
    (tmp_path / "mine.safetensors").write_bytes(checkpoint_bytes(model))
    back = load(tmp_path / "mine.safetensors")
    assert back.config == model.config and back.dtype == torch.float32 and not back.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor.half().float())
    assert not any(parameter.requires_grad for parameter in back.parameters())


def damaged(folder: Path, how: str) -> Path:
    path, good = folder / "damaged.safetensors", checkpoint_bytes(random_model(shape(2, SMALL, 16)))
    path.write_bytes(good)
    weights = load_file(path)
    config = json.dumps({"vocab_size": 68} | {"n_layers": 2})
    if how == "cut short":
        path.write_bytes(good[:-100])
    elif how == "no file at all":
        path.unlink()
    elif how == "a text":
        path.write_text("recall")
    elif how == "without its shape":
        save_file(weights, path)
    elif how == "half its shape":
        save_file(weights, path, {"config": config})
    else:
        with_shape = {"config": json.dumps(vars(shape(2, SMALL, 16)))}
        if how == "a number that is none":
            weights["layers.1.down"][3, 4] = torch.nan
        elif how == "a tensor too few":
            del weights["head"]
        elif how == "another shape":
            with_shape = {"config": json.dumps(vars(shape(4, SMALL, 16)))}
        elif how == "a million layers":
            with_shape = {"config": json.dumps(vars(shape(4, SMALL, 16)) | {"n_layers": 1_000_000})}
        save_file(weights, path, with_shape)
    return path


DAMAGE = {
    "cut short": "cannot be read",
    "no file at all": "cannot be read.* python -m course_lib.quality.train makes one anew",
    "a text": "cannot be read",
    "without its shape": "does not say what shape its model has",
    "half its shape": "does not say what shape its model has",
    "a number that is none": "'layers.1.down' holds values that are not finite",
    "a tensor too few": "lacks the tensor 'head'",
    "another shape": r"tensor 'layers.0.qkv' has shape \[32, 16\], expected \[48, 16\]",
    "a million layers": "claims 1000000 layers",
}


@pytest.mark.parametrize(("how", "said"), DAMAGE.items(), ids=DAMAGE)
def test_a_file_that_is_no_whole_recall_model_is_refused_in_words(how: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=said):
        load(damaged(tmp_path, how))


def test_a_kind_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(CheckpointError, match="mla cannot be read.*The kinds are mha, gqa, mqa"):
        load("mla")


# --- Training


@pytest.mark.slow
def test_a_smaller_model_learns_it_anew_to_the_same_accuracy() -> None:
    model = random_model(shape(2, SMALL, 64), seed=0)
    assert ask(model, SMALL.questions(16, 16, 32, seed=1)).rate().share < 0.1
    points = list(training(model, SMALL, load=16, steps=700, rate=4e-3))
    assert [point.step for point in points] == list(range(1, 701))
    assert points[0].pairs == 2 and max(point.pairs for point in points) == 16
    found = by_load(model, (4, 8, 16), contiguous, task=SMALL, rows=64)
    assert {pairs for pairs, answers in found.items() if answers.rate().share > 0.99} == {4, 8, 16}


def test_the_same_lessons_make_the_same_model_and_those_of_another_seed_another() -> None:
    def after(steps: int, seed: int) -> torch.Tensor:
        model = random_model(shape(1, SMALL, 16))
        for _ in training(model, SMALL, load=4, steps=steps, seed=seed):
            pass
        assert not model.layers[0].qkv.requires_grad
        return model.layers[0].qkv

    first = after(5, 0)
    assert torch.equal(first, after(5, 0)) and not torch.equal(first, after(5, 1))


def test_the_program_writes_a_checkpoint_that_loads_and_its_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine.safetensors"
    assert main(["--kv-heads", "1", "--steps", "20", "--to", str(target), "--seed", "3"]) == 0
    assert load(target).config == shape(1)
    record = json.loads((tmp_path / "mine.json").read_text())
    assert (record["kv_heads"], record["steps"], record["seed"]) == (1, 20, 3)
    assert [point["step"] for point in record["curve"]] == [10, 20]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.json", "mine.safetensors"]
    assert "64 pairs:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "nowhere/x.safetensors"], "there is no folder nowhere"),
        (["--steps", "0"], "0 steps teach nothing"),
        (["--kv-heads", "3"], "--kv-heads"),
    ],
)
def test_the_program_refuses_what_it_cannot_do_before_it_begins(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    target = tmp_path / "mine.safetensors"
    command = [sys.executable, "-u", "-c", INTERRUPTED, "--to", str(target)]
    with subprocess.Popen(command, cwd=FOLDER.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"training\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().decode().splitlines()[-1] == "Stopped. Nothing was written."
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import sys
from course_lib.quality import train
loss = train.Lessons.loss
train.Lessons.loss = lambda lessons, step: print("training") or loss(lessons, step)
sys.exit(train.main())
"""
