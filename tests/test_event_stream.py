"""Bytes become events and pieces of text, however they were cut, and what is none of them has a name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.serving.event_stream import MOST_EVENT_BYTES, Answer, EventParser, Fault, Piece, shown


def fed(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The events of a stream that arrives in reads that end at `cuts`."""
    parser, found, at = EventParser(), [], 0
    for cut in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        found += parser.feed(stream[at:cut])
        at = cut
    return [*found, *parser.close()]


@given(
    st.lists(st.lists(st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8")), min_size=1), max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_events_come_out_whole_however_the_bytes_were_cut(events: list[list[str]], end: str, cuts: list[int]) -> None:
    lines = ["\ufeff: a comment"]
    for number, data in enumerate(events):
        lines += [":", f"id: {number}", *(f"data: {line}" for line in data), "event: x", ""]
    stream = (end.join(lines) + end).encode()
    expected = [text.encode() for data in events if (text := "\n".join(data))]
    assert fed(stream, cuts) == expected


def test_the_forms_of_a_line_that_the_standard_allows() -> None:
    assert fed(b"data:no space\n\ndata:  two spaces\n\ndata\n\ndatum: x\n\n", []) == [b"no space", b" two spaces"]
    assert fed("\ufeffdata: after a mark\n\n\ufeffdata: no mark\n\n".encode(), [1, 2]) == [b"after a mark"]
    assert fed(b"data: a\n\n\n\ndata: the last, without an empty line", []) == [
        b"a", b"the last, without an empty line",
    ]  # fmt: skip


@pytest.mark.parametrize("begin", [b"data: ", b": ", b"data: a\ndata: "])
def test_a_line_or_an_event_without_an_end_is_not_read_for_ever(begin: bytes) -> None:
    parser = EventParser()
    parser.feed(begin)
    with pytest.raises(Fault, match="event too long"):
        for _ in range(MOST_EVENT_BYTES // 1000 + 2):
            parser.feed(b"x" * 1000)
    parser = EventParser()
    with pytest.raises(Fault, match="event too long"):
        for _ in range(MOST_EVENT_BYTES // 1000 + 2):
            parser.feed(b"data: " + b"x" * 1000 + b"\n")


def taken(*events: object) -> Answer:
    """An answer that takes these events at 1 s, 2 s, …"""
    answer = Answer()
    for time_s, event in enumerate(events, 1):
        answer.take(event if isinstance(event, bytes) else json.dumps(event).encode(), float(time_s))
    return answer


def choice(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, **fields}]}


def test_only_text_makes_a_piece() -> None:
    answer = taken(
        choice(delta={"role": "assistant", "content": ""}),
        choice(delta={"content": "Hé"}),
        choice(delta={"content": None}),
        choice(delta={"reasoning_content": "hm"}, finish_reason=None),
        choice(text=" plain"),
        choice(delta={}, finish_reason="length"),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "completion_tokens_details": None}},
        b"[DONE]",
    )
    assert answer.pieces == [Piece(2.0, "Hé"), Piece(4.0, "hm"), Piece(5.0, " plain")]
    assert (answer.finish_reason, answer.finish_s, answer.done, answer.complete) == ("length", 6.0, True, True)
    assert (answer.prompt_tokens, answer.new_tokens) == (7, 3)


def test_an_empty_finish_reason_is_none_and_thoughts_under_two_names_come_once() -> None:
    answer = Answer()
    delta = {"content": None, "reasoning": "Hm", "reasoning_content": "Hm"}
    answer.take(json.dumps({"choices": [{"delta": delta, "finish_reason": ""}]}).encode(), 1.0)
    assert not answer.complete and [piece.text for piece in answer.pieces] == ["Hm"] and answer.thinks_aloud


def test_an_answer_is_complete_with_a_finish_reason_or_with_done() -> None:
    assert not taken(choice(delta={"content": "a"})).complete
    assert taken(choice(delta={"content": "a"}, finish_reason="stop")).complete
    assert taken(choice(delta={}, finish_reason="stop")).complete, "it may have tokens without any text"
    assert taken(choice(delta={"content": "a"}), b" [DONE]").finish_s == 2.0


@pytest.mark.parametrize("wrong", [True, -1, 1.5, "7", None, 10**30, [7]])
def test_a_usage_that_cannot_be_is_as_good_as_none(wrong: object) -> None:
    first = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    answer = taken(first, {"choices": [], "usage": {"prompt_tokens": wrong, "completion_tokens": wrong}})
    assert (answer.prompt_tokens, answer.new_tokens) == (7, 3)
    assert taken({"choices": [], "usage": wrong}).new_tokens is None


WRONG = {
    "error in the stream": [{"error": {"message": "no\nmemory"}}, {"error": "x"}, {"choices": [], "error": 3}],
    "invalid JSON": [b'{"error": "said "so""}', b"{", b"\xff", b"[" * 100_000, b'{"choices": [{"delta": {"content": "'],
    "unknown event": [
        [], 3, {}, {"choices": {}}, {"choices": [3]}, choice(delta=["a"]), choice(delta={"content": 3}),
        choice(text=[]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "event"), [(name, event) for name, events in WRONG.items() for event in events])
def test_what_is_no_event_of_an_answer_is_a_fault_with_a_name(name: str, event: object) -> None:
    with pytest.raises(Fault) as fault:
        taken(event)
    assert fault.value.name == name
    assert len(fault.value.detail) <= 210 and fault.value.detail.isprintable()


def test_a_stranger_cannot_write_into_the_terminal() -> None:
    assert shown("a\x1b[31m\r\nb" + "c" * 500) == "a [31m b" + "c" * 192 + "…"
