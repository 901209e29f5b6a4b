"""Trace files in the columns of the Azure LLM inference traces: both known forms are read, hostile ones refused.

The lines here are made up; only their form is that of the public files.
"""

import tracemalloc
from collections.abc import Callable
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.serving import trace as module
from course_lib.serving.arrivals import poisson
from course_lib.serving.trace import MOST_TOKENS, Row, Trace, read_trace, trace_text
from course_lib.serving.workload import mix

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
LINE = b"2023-11-16 18:00:00.0000000,7,3\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "trace.csv"
        path.write_bytes(content)
        return path

    return write


def test_the_form_of_2023_is_read_exactly_with_seven_decimals(written: Callable[[bytes], Path]) -> None:
    """Its lines end in CRLF, the last in nothing."""
    content = HEADER + b"2023-11-16 23:59:59.9999999,374,44\n2023-11-17 00:00:00.0000001,3180,8\n"
    content += b"2023-11-17 00:01:00.5000000,3180,8"
    trace = read_trace(written(content.replace(b"\n", b"\r\n")))
    assert trace == Trace((Row(0.0, 374, 44), Row(2e-7, 3180, 8), Row(60.5000001, 3180, 8)))


def test_the_form_of_2024_is_read_with_and_without_decimals_and_with_its_zone(
    written: Callable[[bytes], Path],
) -> None:
    content = HEADER + b"2024-05-12 00:00:00+00:00,5,1\n2024-05-12 00:00:00.001163+00:00,6,2\n"
    content += b"2024-05-12 02:00:01.5+02:00,7,3\n2024-05-12 00:00:02Z,8,4\n2024-05-12T00:00:02.25,9,5\n"
    assert read_trace(written(content)).rows == (
        Row(0.0, 5, 1), Row(0.001163, 6, 2), Row(1.5, 7, 3), Row(2.0, 8, 4), Row(2.25, 9, 5)
    )  # fmt: skip


def test_other_columns_another_order_a_byte_order_mark_and_empty_lines_do_no_harm(
    written: Callable[[bytes], Path],
) -> None:
    content = b"\xef\xbb\xbfGeneratedTokens,Model, ContextTokens ,TIMESTAMP\n3,x,7,2023-11-16 18:00:00\n\n \n"
    assert read_trace(written(content)).rows == (Row(0.0, 7, 3),)


def test_a_line_without_tokens_is_refused_or_left_out_and_counted(written: Callable[[bytes], Path]) -> None:
    path = written(HEADER + LINE + LINE.replace(b",3", b",0") + LINE.replace(b",7,", b",0,") + LINE)
    with pytest.raises(ValueError, match=r"line 3: 7 prompt tokens and 0 new ones: .* skip_empty=True"):
        read_trace(path)
    trace = read_trace(path, skip_empty=True)
    assert len(trace.rows) == 2 and trace.empty == 2


def test_a_part_is_read_from_the_top_and_the_rest_not_even_looked_at(written: Callable[[bytes], Path]) -> None:
    path = written(HEADER + LINE * 3 + b"nonsense\n" + b"x" * 5000)
    assert read_trace(path, first=3).rows == (Row(0.0, 7, 3),) * 3
    with pytest.raises(ValueError, match="line 5: 'nonsense' has 1 fields, the header 3"):
        read_trace(path, first=4)
    assert len(read_trace(written(HEADER + LINE * 2), first=10).rows) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: '' does not name the columns: write TIMESTAMP,ContextTokens,GeneratedTokens"),
        (LINE * 2, "line 1: '2023-11-16 18:00:00.0000000,7,3' does not name the columns"),
        (b"TIMESTAMP;ContextTokens;GeneratedTokens\n" + LINE, "line 1: .* does not name the columns"),
        (b"TIMESTAMP,ContextTokens\n2023-11-16 18:00:00,7\n", "line 1: .* does not name the columns"),
        (b"TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens\n", "line 1: .* does not name the columns"),
        (HEADER, "there is no request in it"),
        (HEADER + b"\n\n", "there is no request in it"),
        (HEADER + LINE + b"2023-11-16 18:00:01,7\n", "line 3: '2023-11-16 18:00:01,7' has 2 fields, the header 3"),
        (HEADER + b"2023-11-16 18:00:01,7,3,9\n", "line 2: .* has 4 fields"),
        (HEADER + b'"2023-11-16 18:00:01","7","3"\n', "line 2: .* is no time"),
        (HEADER + LINE + b"yesterday,7,3\n", "line 3: 'yesterday' is no time: write it as 2023-11-16 18:17:03"),
        (HEADER + b"2023-13-16 18:00:00,7,3\n", "line 2: '2023-13-16 18:00:00' is no time"),
        (HEADER + b"0000-01-01 00:00:00,7,3\n", "line 2: .* is no time"),
        (HEADER + b"2023-11-16 18:00:00+99:00,7,3\n", "line 2: .* is no time"),
        (HEADER + b"2023-11-16 18:00:00.0000000000,7,3\n", "line 2: .* is no time"),
        (HEADER + b"16/11/2023 18:00,7,3\n", "line 2: .* is no time"),
        (HEADER + b"nan,7,3\n", "line 2: 'nan' is no time"),
        (HEADER + "２０２３-11-16 18:00:00,7,3\n".encode(), "line 2: .* is no time"),
        (HEADER + "2023-11-16 18:00:00.５,7,3\n".encode(), "line 2: .* is no time"),
        (HEADER + LINE + b"2023-11-16 18:00:02,7,3\n2023-11-16 18:00:01,7,3\n", "line 4: .* is 1.0 s before the line"),
        (HEADER + b"2023-11-16 18:00:02,7,3\n2023-11-16 18:00:00.5,7,3\n",
         "line 3: '2023-11-16 18:00:00.5' is 1.5 s before the line above: sort the lines by TIMESTAMP"),
        (HEADER + LINE.replace(b",7,", b",-7,"), "line 2: ContextTokens is '-7': write a whole number from 0 to"),
        (HEADER + LINE.replace(b",3", b",NaN"), "line 2: GeneratedTokens is 'NaN'"),
        (HEADER + LINE.replace(b",3", b","), "line 2: GeneratedTokens is ''"),
        (HEADER + LINE.replace(b",3", b",3.0"), "line 2: GeneratedTokens is '3.0'"),
        (HEADER + LINE.replace(b",3", b",1e3"), "line 2: GeneratedTokens is '1e3'"),
        (HEADER + LINE.replace(b",3", b",1_0"), "line 2: GeneratedTokens is '1_0'"),
        (HEADER + LINE.replace(b",3", b",inf"), "line 2: GeneratedTokens is 'inf'"),
        (HEADER + LINE.replace(b",3", ",³".encode()), "line 2: GeneratedTokens is '³'"),
        (HEADER + LINE.replace(b",3", f",{MOST_TOKENS + 1}".encode()), "line 2: GeneratedTokens is '10000001'"),
        (HEADER + LINE.replace(b",3", b"," + b"9" * 900), "line 2: GeneratedTokens is '9{40}…'"),
        (HEADER + LINE.replace(b",3", b",\x1b[31m"), r"line 2: GeneratedTokens is '\\x1b\[31m'"),
        (HEADER + LINE + b"x" * 1001, "line 3: longer than 1000 bytes"),
        (b"\x1f\x8b\x08" + HEADER, "line 1: byte 0x8b is no UTF-8: unpack the file"),
        ((HEADER + LINE).decode().encode("utf-16"), "line 1: byte 0xff is no UTF-8: .* save it as CSV in UTF-8"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_with_line_value_and_remedy(
    written: Callable[[bytes], Path], content: bytes, said: str
) -> None:
    with pytest.raises(ValueError, match=f"trace.csv, {said}"):
        read_trace(written(content))


def test_a_line_of_a_gigabyte_is_never_held(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    with path.open("wb") as file:
        file.write(HEADER)
        file.truncate(2**30)  # a hole in the file: zeros without a line end
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 2: longer than 1000 bytes"):
            read_trace(path)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_more_lines_than_can_be_held_are_refused_and_a_part_of_them_is_read(
    written: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 5)
    assert len(read_trace(written(HEADER + LINE * 5)).rows) == 5
    path = written(HEADER + LINE * 6)
    with pytest.raises(ValueError, match=r"line 7: more than 5 requests: read a part, such as first=10_000"):
        read_trace(path)
    assert len(read_trace(path, first=4).rows) == 4


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "nowhere.csv")


PIECES = [
    HEADER.decode(),
    LINE.decode(),
    "2024-05-12 00:00:00+00:00",
    ",",
    "\n",
    "\r",
    "0",
    "-1",
    "\ufeff",
    '"',
    "\0",
    "é",
]


@given(
    st.sampled_from((b"", HEADER, HEADER + LINE)),
    st.lists(st.sampled_from(PIECES), max_size=12),
    st.sampled_from((b"", b"\n")) | st.binary(max_size=20),
    st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_a_file_it_is_a_trace_or_a_value_error(
    written: Callable[[bytes], Path], begin: bytes, pieces: list[str], end: bytes, skip: bool
) -> None:
    path = written(begin + "".join(pieces).encode() + end)
    try:
        trace = read_trace(path, skip_empty=skip)
    except ValueError as error:
        assert str(error).startswith("trace.csv, ")
    else:
        assert trace.rows and all(row.time_s >= 0 and row.prompt_tokens and row.new_tokens for row in trace.rows)


# --- From a trace to arrivals


ROWS = Trace((Row(0.0, 9, 4), Row(1.5, 2, 1), Row(1.5, 30, 12)))


def test_arrivals_have_the_times_and_lengths_of_the_trace_and_random_tokens() -> None:
    arrivals = ROWS.arrivals(50)
    assert [(a.time_s, len(a.request.prompt), a.request.max_new_tokens) for a in arrivals] == list(ROWS.rows)
    assert [a.request.name for a in arrivals] == ["t0", "t1", "t2"]
    seeds = {a.request.seed for seed in (0, 1) for a in ROWS.arrivals(50, seed=seed)}
    assert len(seeds) == 6, "a load test draws the words of a prompt with it: no two may be alike"
    tokens = {token for arrival in Trace(ROWS.rows * 100).arrivals(5) for token in arrival.request.prompt}
    assert tokens == set(range(5))
    assert ROWS.arrivals(50) == arrivals != ROWS.arrivals(50, seed=1)


def test_a_longer_trace_begins_as_a_shorter_one_does() -> None:
    assert ROWS.arrivals(50)[:2] == Trace(ROWS.rows[:2]).arrivals(50)


def test_a_trace_can_be_told_faster_and_cut_to_a_model_and_says_how_many_were_cut() -> None:
    arrivals = ROWS.arrivals(50, faster=3, most_prompt=9, most_new=3)
    assert [(a.time_s, len(a.request.prompt), a.request.max_new_tokens) for a in arrivals] == [
        (0.0, 9, 3), (0.5, 2, 1), (0.5, 9, 3)
    ]  # fmt: skip
    assert ROWS.cut(9, 3) == 2 and ROWS.cut(9, 12) == 1 and ROWS.cut(30, 12) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [({"faster": 0}, "faster .* not 0"), ({"faster": nan}, "not nan"), ({"faster": inf}, "not inf"),
     ({"most_prompt": 0}, "most_prompt .* not 0"), ({"most_new": -1}, "most_new .* not -1"),
     ({"vocab_size": 0}, "vocabulary .* not 0"), ({"vocab_size": 10**12}, "vocabulary .* not 1000000000000"),
     ({"most_new": 2.5}, "most_new must be a whole number")],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ROWS.arrivals(**{"vocab_size": 50} | options)  # type: ignore[arg-type]


def test_prompts_that_would_fill_the_memory_are_refused_before_they_are_made() -> None:
    huge = Trace((Row(0.0, MOST_TOKENS, 1),) * 6)
    with pytest.raises(ValueError, match="60,000,000 tokens in all, more than 50,000,000: .* cut prompts"):
        huge.arrivals(5)
    assert len(huge.arrivals(5, most_prompt=3)) == 6


@given(st.integers(1, 12), st.floats(0.01, 1000), st.integers(0, 5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrivals_written_as_a_trace_are_read_back_to_a_tenth_of_a_microsecond(
    written: Callable[[bytes], Path], count: int, rate: float, seed: int
) -> None:
    arrivals = poisson(mix(count, 9, seed=seed), rate, seed)
    rows = read_trace(written(trace_text(arrivals).encode())).rows
    assert [row[1:] for row in rows] == [(len(a.request.prompt), a.request.max_new_tokens) for a in arrivals]
    since = [arrival.time_s - arrivals[0].time_s for arrival in arrivals]
    assert [row.time_s for row in rows] == pytest.approx(since, abs=1.01e-7)
