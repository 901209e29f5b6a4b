"""`course loadtest` as a person meets it: what it prints, writes and returns, and Ctrl-C."""

import asyncio
import json
import signal
from itertools import pairwise
from pathlib import Path

import pytest
from course_command import call, start
from scripted_server import Script, ScriptedServer, Visit, after_two, answers, event, plan, scripted_server, usage

from course_lib.checkpoints import CheckpointError


def words(server: ScriptedServer, *more: str) -> list[str]:
    return ["loadtest", "--url", server.url, "--model", "m", *more]


def test_the_table_fits_80_columns_and_says_what_it_rests_on(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    with scripted_server(plan([1] * 4)) as server:
        asked = ("--requests", "5", "--rate", "50", "--ttft-target", "30", "--json", str(target))
        result = call(*words(server, *asked))
    assert result.exit_code == 0, result.output
    for word in ("TTFT", "ITL", "TPOT", "end to end", "p99", "goodput", "5 of 5 within the targets", "5 answers",
                 "15 gaps", "counted by the server, one in each piece", "a client cannot see them"):  # fmt: skip
        assert word in result.stdout, word
    assert "Went wrong" not in result.stdout and max(map(len, result.stdout.splitlines())) <= 80
    found = json.loads(target.read_text(encoding="utf-8"))
    assert (found["finished"], found["met"], found["faults"], found["partial"]) == (5, 5, {}, False)
    assert found["tokens_counted_by"] == {"usage": 5} and found["ttft_s"]["samples"] == 5
    assert found["prompts_counted_by_server"] == 5 and found["hidden_tokens"] == 0
    assert {request["prompt_tokens"] for request in found["requests"]} == {40}, "as the server says"
    assert [len(request["token_times_s"]) for request in found["requests"]] == [4] * 5


def test_what_went_wrong_is_listed_with_the_words_of_the_server_and_the_status_is_1(tmp_path: Path) -> None:
    figure = tmp_path / "run.svg"
    scripts = (plan([1]), answers("429 Slow", '"come back later"'), after_two(lambda visit: visit.end()), plan([1, 2]))
    with scripted_server(*scripts) as server:
        asked = ("--arrivals", "closed", "--concurrency", "1", "--requests", "6", "--figure", str(figure))
        result = call(*words(server, *asked))
        drawn = figure.read_text(encoding="utf-8")
        silent = call(*words(server, *asked, "--json", "-"))
    assert result.exit_code == silent.exit_code == 1
    assert "- 2 × HTTP 429, such as: come back later" in result.stdout and "2 × ended early" in result.stdout
    assert "laid out by the lengths of pieces" in result.stdout, "one piece held two tokens, and nobody counted them"
    assert drawn.startswith("<?xml") and "run.svg" in result.stderr
    assert set(json.loads(silent.stdout)["faults"]) == {"HTTP 429", "ended early"}


@pytest.mark.parametrize(
    ("kind", "number", "gaps"),
    [("poisson", 6, None), ("bursts", 6, [0, 0, 0.03, 0, 0]), ("closed", 6, None), ("day.csv", 3, [0.02, 0.04])],
)
def test_requests_come_as_they_are_told_to(
    kind: str, number: int, gaps: list[float] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.00,30,7", "2023-11-16 18:15:47.00,900,70",
             "2023-11-16 18:15:49.00,20,1")  # fmt: skip
    Path("day.csv").write_text("\n".join(lines))
    rate = "33.333333" if kind == "day.csv" else "100"
    with scripted_server(plan([1])) as server:
        limits = ("--prompt-tokens", "40", "--new-tokens", "9")
        asked = ("--arrivals", kind, "--rate", rate, "--concurrency", "3", "--requests", "6", *limits)
        result = call(*words(server, *asked, "--json", "-"))
    found = json.loads(result.stdout)
    times = [request["arrival_s"] for request in found["requests"]]
    assert (len(times), found["partial"]) == (number, False)
    if gaps is not None:
        assert [after - before for before, after in pairwise(times)] == pytest.approx(gaps)
    asked_for = [(len(v.body["messages"][0]["content"].split()), v.body["max_tokens"]) for v in server.visits[1:]]
    assert sorted(asked_for) == ([(20, 1), (30, 7), (40, 9)] if kind == "day.csv" else [(40, 9)] * 6)


def test_the_rate_of_a_trace_is_that_of_its_requests(tmp_path: Path) -> None:
    """Empty lines are left out, also the first, from which its times are counted."""
    trace = tmp_path / "day.csv"
    lines = ("TIMESTAMP,ContextTokens,GeneratedTokens", *(f"2023-11-16 18:15:{s:02},{n},{n}" for s, n in
             ((0, 0), (10, 5), (11, 5), (12, 5))))  # fmt: skip
    trace.write_text("\n".join(lines))
    with scripted_server(plan([1])) as server:
        asked = ("--arrivals", str(trace), "--rate", "20", "--json", "-")
        three, one = (json.loads(call(*words(server, *asked, *more)).stdout) for more in ([], ["--requests", "2"]))
    times = [request["arrival_s"] for request in three["requests"]]
    assert [after - before for before, after in pairwise(times)] == pytest.approx([0.05, 0.05])
    assert len(one["requests"]) == 1


def test_each_row_says_what_its_name_says_and_each_option_is_heard() -> None:
    """A gap of 0.3 s in one answer of three tokens, so ITL has 0.05 and 0.3 s, and TPOT is their mean."""

    async def uneven(visit: Visit) -> None:
        visit.begin()
        for wait_s in (0.02, 0.05, 0.3):
            await asyncio.sleep(wait_s)
            visit.piece(" w")
            await visit.writer.drain()
        visit.finish()

    with scripted_server(uneven) as server:
        asked = ("--arrivals", "bursts", "--requests", "1", "--concurrency", "1")
        said = call(*words(server, *asked)).stdout
        rows = (line.split() for line in said.splitlines() if line[:4] in ("ITL ", "TPOT"))
        largest = {row[0]: float(row[4]) for row in rows}
        assert 150 < largest["TPOT"] < largest["ITL"] and largest["ITL"] > 290
        others = [call(*words(server, "--requests", "1", "--seed", seed)).exit_code for seed in "12"]
    assert others == [0, 0]
    first, second = (server.visits[number].body["messages"][0]["content"] for number in (-3, -1))
    assert first != second, "another seed, other words"


def test_plain_completions_and_a_limit_of_requests_at_once_are_heard() -> None:
    with scripted_server(plan([1], first_s=0.1)) as server:
        asked = ("--requests", "4", "--rate", "1000", "--concurrency", "1", "--completions")
        assert call(*words(server, *asked)).exit_code == 0
    assert all(visit.head.startswith("POST /v1/completions ") for visit in server.visits)
    assert all("prompt" in visit.body and "messages" not in visit.body for visit in server.visits)
    assert all(later.received_s > earlier.sent[-1][0] for earlier, later in pairwise(server.visits))


def test_a_tokenizer_lays_out_the_tokens_of_a_piece() -> None:
    async def packed(visit: Visit) -> None:
        visit.begin()
        visit.piece("The capital", 2)
        visit.piece(" of France is Paris", 4)
        visit.finish()

    with scripted_server(packed) as server:
        asked = ("--requests", "2", "--rate", "50", "--tokenizer", "smollm2")
        found = json.loads(call(*words(server, *asked, "--json", "-")).stdout)
    assert found["tokens_counted_by"] == {"usage and tokenizer": 2}
    assert [len(set(request["token_times_s"])) for request in found["requests"]] == [2, 2]


def test_a_tokenizer_that_cannot_be_fetched_is_no_wrong_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(name: str) -> Path:
        raise CheckpointError("cannot reach the package index")

    monkeypatch.setattr("course_lib.checkpoints.fetch", no_network)
    result = call("loadtest", "--url", "http://127.0.0.1:9", "--model", "m", "--tokenizer", "smollm2")
    assert (result.exit_code, result.stderr) == (1, "error: cannot reach the package index\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_what_was_measured_is_shown_and_drawn_also_where_the_json_does_not_fit(tmp_path: Path) -> None:
    figure = tmp_path / "run.svg"
    with scripted_server(plan([1])) as server:
        result = call(*words(server, "--requests", "2", "--rate", "50", "--json", "/dev/full", "--figure", str(figure)))
    assert result.exit_code == 1 and "/dev/full: No space left on device" in result.stderr
    assert "TTFT" in result.stdout and figure.exists()


def test_hidden_thoughts_are_in_no_number_and_said() -> None:
    async def thinks(visit: Visit) -> None:
        visit.begin()
        for text in (" a", " b", " c"):
            visit.piece(text)
        counted = usage(40, 3 + 25) | {"completion_tokens_details": {"reasoning_tokens": 25}}
        last = event(None, finish_reason="length", usage=counted)
        visit.chunk(last)
        visit.end()

    with scripted_server(thinks) as server:
        asked = words(server, "--requests", "2", "--rate", "50")
        said, found = call(*asked).stdout, json.loads(call(*asked, "--json", "-").stdout)
    assert "50 tokens of thinking were counted by the server and not sent" in " ".join(said.split())
    assert found["hidden_tokens"] == 50 and found["tokens_counted_by"] == {"usage": 2}
    assert [len(request["token_times_s"]) for request in found["requests"]] == [3, 3]


WRONG = {
    "no server": (["--url", "http://127.0.0.1:9"], 1, "no connection"),
    "no address": (["--url", "127.0.0.1"], 2, "'127.0.0.1' is no address"),
    "no rate": (["--rate", "0"], 2, "rate"),
    "no time": (["--timeout", "nan"], 2, "nan"),
    "no target": (["--ttft-target", "-1"], 2, "ttft_s"),
    "no kind": (["--arrivals", "monsoon"], 2, "monsoon"),
    "no key": (["--api-key-env", "COURSE_NO_SUCH_KEY"], 2, "COURSE_NO_SUCH_KEY"),
    "no format": (["--figure", "run.pdf"], 2, "run.pdf"),
    "no folder": (["--figure", "/nosuch/run.png"], 2, "/nosuch/run.png"),
    "no JSON": (["--json", "/nosuch/run.json"], 2, "/nosuch"),
    "no tokenizer": (["--tokenizer", "/nosuch"], 2, "/nosuch"),
}


@pytest.mark.parametrize(("more", "status", "named"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_answered_in_one_line(more: list[str], status: int, named: str) -> None:
    result = call("loadtest", "--model", "m", *(["--url", "http://127.0.0.1:9"] if "--url" not in more else []), *more)
    assert (result.exit_code, result.stdout) == (status, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(")") and named in line


def test_a_server_that_refuses_the_call_is_quoted() -> None:
    with scripted_server(answers("404 Not Found", '{"error": {"message": "no model m here"}}')) as server:
        result = call(*words(server))
    assert result.exit_code == 2 and "HTTP 404: no model m here" in result.stderr


def test_ctrl_c_prints_what_was_measured_and_that_it_is_a_part() -> None:
    scripts: tuple[Script, ...] = (plan([1, 1]), plan([1, 1]), plan([1, 1]), plan([1], first_s=60.0))
    with scripted_server(*scripts) as server:
        process = start(*words(server, "--rate", "200", "--requests", "9"))
        while len(server.visits) < 10:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.splitlines()[-1] == "stopped" and "Traceback" not in err
    assert "Stopped: 9 of 9 requests had come." in out and "TTFT" in out
    assert "were under way when it was stopped" in " ".join(out.split())
