"""The `course` command as a person meets it: help, output, errors, exit statuses, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_files as files
import pytest
from course_command import COURSE, as_json, call, start

from course_lib import generation
from course_lib.checkpoints import fetched, load
from course_lib.commands import doctor

COMMANDS = ("lab", "doctor", "fetch", "generate", "run", "size", "progress", "serve", "loadtest")
COMMANDS = (*COMMANDS, "build", "release", "grade")  # for authors and teachers


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers with a long memory and a chat template. It babbles bytes, many of no character."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    model = files.llama(max_position_embeddings=20_000)
    return files.write_gguf(path, files.gguf_metadata(model), files.gguf_tensors(model))


# --- help and errors ------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom course_lib.cli import main\nsys.argv = ['course', '--help']\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'nbformat', 'jupyter_client', 'psutil', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: course {command}" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_who_started_the_course_with_start_py_is_told_to_do_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_PROGRAM", "python start.py")
    monkeypatch.setenv("COURSE_CACHE", "/nosuch")
    for words in ([], *([command] for command in COMMANDS)):
        text = " ".join(call(*words, "--help").stdout.split())
        assert f"Usage: python start.py {' '.join(words)}" in text
        known = "|".join(("COMMAND", *COMMANDS))
        assert not re.search(rf"(?<!/)\bcourse ({known})\b", text), text
    for words in (["nosuch"], ["run", "--nosuch"], ["generate", "hi", "--top-p", "7"], ["generate", " "]):
        error = call(*words).stderr
        assert "(" in error and "python start.py" in error and "course " not in error
    checks = json.loads(call("doctor", "--json", "-").stdout)["checks"]
    (weights,) = [check for check in checks if check["check"] == "weights"]
    assert weights["remedy"].startswith("run: python start.py fetch")
    monkeypatch.delenv("COURSE_PROGRAM")
    assert "`course" not in call("lab", "--help").stdout and "course lab 02" in call("lab", "--help").stdout


WRONG_CALLS = {
    "no command": (["nosuch"], "nosuch"),
    "no option": (["run", "--nosuch"], "--nosuch"),
    "no text": (["generate"], "text"),
    "empty text": (["generate", " \n"], "empty"),
    "no tokens": (["generate", "hi", "--max-new-tokens", "0"], "max-new-tokens"),
    "no number": (["generate", "hi", "--max-new-tokens", "many"], "max-new-tokens"),
    "negative temperature": (["generate", "hi", "--temperature", "-1"], "temperature"),
    "temperature is no number": (["generate", "hi", "--temperature", "nan"], "temperature"),
    "top-k of 0": (["generate", "hi", "--top-k", "0"], "top_k"),
    "top-p above 1": (["generate", "hi", "--top-p", "7"], "top_p"),
    "negative seed": (["generate", "hi", "--seed", "-1"], "seed"),
    "enormous seed": (["generate", "hi", "--seed", str(2**63)], "seed"),
    "unknown model": (["generate", "hi", "--model", "gpt-9"], "gpt-9"),
    "unknown dtype": (["generate", "hi", "--dtype", "float8"], "float8"),
    "unknown device": (["generate", "hi", "--device", "abacus"], "abacus"),
    "no folder for JSON": (["generate", "hi", "--json", "/nosuch/folder/x.json"], "/nosuch/folder"),
    "unknown model to fetch": (["fetch", "gpt-9"], "gpt-9"),
    "no such notebook": (["run", "nosuch.ipynb"], "nosuch.ipynb"),
    "no such notebook to build": (["build", "nosuch.ipynb"], "nosuch.ipynb"),
    "a timeout of nothing": (["run", "--timeout", "0"], "timeout"),
    "an endless timeout": (["run", "--timeout", "inf"], "timeout"),
    "a timeout without an end": (["build", "--timeout", "1" + "0" * 400], "timeout"),
    "a timeout that is no number": (["run", "--timeout", "nan"], "timeout"),
    "a model of nobody": (["generate", "hi", "--model", "~nosuch/m.gguf"], "~nosuch/m.gguf"),
    "a notebook of nobody": (["run", "~nosuch/x.ipynb"], "~nosuch/x.ipynb"),
    "copies of nobody": (["lab", "--no-browser", "--work", "~nosuch/w"], "~nosuch/w"),
    "a tokenizer of nobody": (
        ["loadtest", "--url", "http://127.0.0.1:9", "--model", "m", "--tokenizer", "~nosuch/t"],
        "~nosuch/t",
    ),
    "a port that is none": (["lab", "--port", "70000"], "port"),
}


@pytest.mark.parametrize(("words", "named"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_wrong_call_is_answered_in_one_line_that_names_the_fault(words: list[str], named: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(")"), "the fault, then in brackets what helps"
    assert named in line


def test_text_that_is_not_utf8_or_too_long_is_a_wrong_call(tiny: Path) -> None:
    for text, named in ((b"\xff\xfe", "UTF-8"), (b"a" * 30_000, "at most 20000")):
        result = call("generate", "-", "--model", str(tiny), "--raw", text=text)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert named in line
    result = call("generate", "ab", "--model", str(tiny), "--raw", "--max-new-tokens", "20001")
    assert result.exit_code == 2 and "at most 20000 fit" in result.stderr


def test_damaged_model_is_the_works_fault_not_the_calls(tiny: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny.read_bytes()[:5000])
    result = call("generate", "hi", "--model", str(half))
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and "half.gguf" in line


# --- generate -------------------------------------------------------------------------------------------------------


def test_generate_reports_what_it_did_with_units_in_the_names(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("generate", "ab the", "--model", str(tiny), "--max-new-tokens", "40", "--dtype", "float64")
    found = as_json(*words)
    tokenizer = load(tiny).tokenizer
    assert found["prompt_tokens"] == len(tokenizer.chat([{"role": "user", "content": "ab the"}]))
    assert found["new_tokens"] == len(found["tokens"]) <= 40
    assert found["stopped"] == (found["tokens"][-1] in tokenizer.stop_tokens)
    assert found["text"] == tokenizer.decode(found["tokens"])
    assert (found["model"], found["dtype"], found["cache"]) == ("tiny", "float64", True)
    assert len(found["itl_s"]) == len(found["tokens"]) - 1
    assert found["ttft_s"] > 0
    assert found["tpot_s"] == pytest.approx(sum(found["itl_s"]) / len(found["itl_s"]))
    asked: list[bool] = []
    real = generation.stream

    def stream(*arguments: Any, **options: Any) -> Any:
        asked.append(options["use_cache"])
        return real(*arguments, **options)

    monkeypatch.setattr("course_lib.generation.stream", stream)
    without = as_json(*words, "--no-cache")
    assert asked == [False] and without["cache"] is False
    assert without["tokens"] == found["tokens"], "the cache changes the time, not the text"


def test_raw_text_is_continued_without_a_template_and_may_come_from_standard_input(tiny: Path) -> None:
    words = ("--model", str(tiny), "--raw", "--max-new-tokens", "3")
    piped = as_json("generate", "-", *words, text="the cabin é\n".encode())
    assert piped["prompt_tokens"] == len(load(tiny).tokenizer.encode("the cabin é"))
    assert piped["tokens"] == as_json("generate", "the cabin é", *words)["tokens"]


def test_a_seed_gives_the_same_draw_again_and_another_seed_another(tiny: Path) -> None:
    words = ("generate", "ab", "--model", str(tiny), "--temperature", "1.5", "--top-k", "200", "--top-p", "0.99")
    first, again, other = (as_json(*words, "--seed", seed)["tokens"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_character_that_is_spread_over_tokens_is_shown_whole(tiny: Path) -> None:
    words = ("generate", "ab", "--model", str(tiny), "--temperature", "3", "--max-new-tokens", "400")
    longest = max((as_json(*words, "--seed", seed) for seed in "123"), key=lambda found: len(found["tokens"]))
    assert longest["text"] == load(tiny).tokenizer.decode(longest["tokens"])
    spread = [letter for letter in longest["text"] if "\x7f" < letter < "\u0800"]  # of two bytes, so of two tokens
    assert spread, "there was none to show: this proves nothing"


def test_answer_and_table_fit_80_columns_and_json_goes_to_its_file_as_well(tiny: Path, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.symlink_to(tmp_path / "linked.json")
    result = call("generate", "hi", "--model", str(tiny), "--max-new-tokens", "5", "--json", str(target))
    assert result.exit_code == 0
    found = json.loads(target.read_text(encoding="utf-8"))
    assert target.is_symlink() and sorted(p.name for p in tmp_path.iterdir()) == ["linked.json", "result.json"]
    assert result.stdout.startswith(found["text"] + "\n")
    table = result.stdout.removeprefix(found["text"])
    for word in ("TTFT", "ITL, median", "ITL, largest", "TPOT", "prefill", "decode", "ms", "tokens/s"):
        assert word in table
    assert max(map(len, table.splitlines())) <= 80


def test_one_new_token_has_no_gaps(tiny: Path) -> None:
    found = as_json("generate", "hi", "--model", str(tiny), "--max-new-tokens", "1")
    assert (len(found["tokens"]), found["itl_s"], found["tpot_s"]) == (1, [], None)
    assert call("generate", "hi", "--model", str(tiny), "--max-new-tokens", "1").exit_code == 0


def test_what_is_streamed_is_whole_characters_and_ctrl_c_ends_it_in_a_line(tiny: Path) -> None:
    words = ("generate", "hi", "--model", str(tiny), "--temperature", "2", "--max-new-tokens", "19000")
    process = start(*words, encoding=None, bufsize=0)
    assert process.stdout is not None and process.stderr is not None
    read = b"".join(process.stdout.read(1) for _ in range(200))
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.fail("the model was done before it could be stopped: this proves nothing")
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1] == "stopped" and b"Traceback" not in errors
    text = (read + rest).decode()  # raises if half a character was written
    assert text.endswith("\n") and "TTFT" not in text


@pytest.mark.skipif(os.name == "nt", reason="a shell of this system closes no stream")
def test_a_stream_that_is_closed_is_an_empty_one(tiny: Path) -> None:
    answer = ("generate", "hi", "--model", str(tiny), "--max-new-tokens", "2")
    for closed, words, status, out, err in (
        ("<&-", ("generate", "-"), 2, "", "the text is empty"),
        (">&-", answer, 0, "", ""),
        ("2>&-", ("nosuch",), 2, "", ""),
    ):
        command = ["sh", "-c", f'"$@" {closed}', "sh", str(COURSE), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (status, out)
        assert err in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system gives standard output no name")
@pytest.mark.parametrize("target", ["-", "/dev/stdout", "out.json"])
@pytest.mark.parametrize("behind", ["> out.json", "| cat > out.json"])
def test_json_where_standard_output_goes_is_all_that_comes_out(target: str, behind: str, tmp_path: Path) -> None:
    if target == "out.json" and behind.startswith("|"):
        behind = "> out.json"
    command = f'"$@" --json {target} {behind}'
    words = ("size", "--model", "llama-3-8b")
    done = subprocess.run(
        ["sh", "-c", command, "sh", str(COURSE), *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "out.json").read_text())["model"] == "llama-3-8b"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_said_with_what_helps_after_what_was_found() -> None:
    result = call("size", "--model", "llama-3-8b", "--json", "/dev/full")
    assert result.exit_code == 1 and "together" in result.stdout
    assert result.stderr == "error: /dev/full: No space left on device (make room, or name a place on another disk)\n"


@pytest.mark.parametrize("while_importing", ["typer", "course_lib.commands.for_authors", "rich.table"])
def test_ctrl_c_before_a_command_has_begun_ends_it_in_a_line(while_importing: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""if True:
        import os, signal, sys
        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == {while_importing!r}:
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, CtrlC())
    """)
    process = start("size", "--list", env=os.environ | {"PYTHONPATH": str(tmp_path)})
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "stopped\n")


def test_a_reader_that_goes_away_is_no_fault(tiny: Path) -> None:
    words = ("generate", "hi", "--model", str(tiny), "--temperature", "2", "--max-new-tokens", "19000")
    process = start(*words)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(20)
    process.stdout.close()
    errors = process.stderr.read()
    process.wait(timeout=60)
    assert errors == ""


def test_smollm2_knows_the_capital_of_france() -> None:
    found = as_json("generate", "What is the capital of France?", "--max-new-tokens", "12")
    assert "Paris" in found["text"]
    assert found["model"] == "smollm2"


def test_fetch_says_where_the_verified_weights_lie() -> None:
    result = call("fetch")
    assert result.exit_code == 0
    path = fetched("smollm2")
    assert path is not None
    assert path.name in result.stdout and "verified" in result.stdout and "98 MB" in result.stdout


# --- doctor ---------------------------------------------------------------------------------------------------------


def test_doctor_finds_this_machine_fit_and_prints_it_in_80_columns(tmp_path: Path) -> None:
    target = tmp_path / "doctor.json"
    result = call("doctor", "--json", str(target))
    found = json.loads(target.read_text(encoding="utf-8"))
    checks = {check["check"]: check for check in found["checks"]}
    assert {check["state"] for check in found["checks"]} <= {"ok", "warning", "problem"}
    assert found["problems"] == sum(check["state"] == "problem" for check in found["checks"])
    assert result.exit_code == (1 if found["problems"] else 0)
    for name in ("Python", "torch", "dtypes", "weights", "JupyterLab", "kernel", "cache folder", "data folder"):
        assert checks[name]["state"] == "ok", checks[name]
    assert checks["dtypes"]["value"] == "float32, bfloat16, float16 and float64 all compute"
    for check in found["checks"]:
        assert check["check"] in result.stdout
        assert check["state"] == "ok" or check["remedy"], "whatever is not ok has a remedy"
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_doctor_tells_problems_from_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "empty"))  # nothing fetched: the course fetches it when needed
    monkeypatch.setenv("PATH", str(tmp_path))  # no browser, no bubblewrap
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("COURSE_DATA", str(blocked / "data"))
    result = call("doctor", "--json", "-")
    assert result.exit_code == 1
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    for name in ("weights", "browser", "bubblewrap"):
        assert checks[name]["state"] == "warning", checks[name]
    assert checks["data folder"]["state"] == "problem" and "COURSE_DATA" in checks["data folder"]["remedy"]
    assert not (tmp_path / "empty").exists(), "looking makes nothing"


def test_doctor_names_the_variable_that_means_the_home_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("cache", "data", "work"):
        monkeypatch.setenv(f"COURSE_{kind.upper()}", "~nosuch/x")
    monkeypatch.setattr(doctor, "kernel", doctor.python)  # which takes a second to start
    checks = {check["check"]: check for check in json.loads(call("doctor", "--json", "-").stdout)["checks"]}
    for kind in ("cache", "data", "work"):
        found = checks[f"{kind} folder"]
        assert found["state"] == "problem" and found["value"].startswith(f"COURSE_{kind.upper()}=~nosuch/x: ")
        assert found["remedy"] == f"write the whole path into COURSE_{kind.upper()}, or unset it"
    assert checks["weights"]["remedy"] == checks["disk"]["remedy"] == checks["cache folder"]["remedy"]
