"""The load test measures what the server's own log says: first tokens, gaps and throughput, at any kind of arrivals."""

import asyncio
import threading
import time
from itertools import pairwise
from statistics import median

import pytest
from scripted_server import ScriptedServer, Visit, after_two, answers, event, plan, scripted_server

from course_lib.serving.arrivals import ClosedLoop, bursts, poisson
from course_lib.serving.endpoint import Endpoint
from course_lib.serving.loadtest import Report, measure, questions
from course_lib.serving.prompt_text import prompt_text
from course_lib.serving.record import Arrival, RequestRecord
from course_lib.serving.request import Request
from course_lib.study.serving_figures import states

NEAR_S = 0.005  # what is promised, in the median: the way from one program's clock to the other's and back
TRIES = 5  # on a machine with other work to do, a median may be off


def visit_of(server: ScriptedServer, request: Request) -> Visit:
    """What the server knows of a request, which it tells from others by its words."""
    (found,) = (v for v in server.visits if v.body["messages"][0]["content"] == prompt_text(request))
    return found


def pairs(server: ScriptedServer, report: Report, requests: list[Request]) -> list[tuple[RequestRecord, Visit]]:
    return [(report.log[request.name], visit_of(server, request)) for request in requests]


def off_by(server: ScriptedServer, report: Report, requests: list[Request]) -> dict[str, float]:
    """How far the report is from the server's log, in seconds: medians of TTFT and ITL, and throughput as the time that
    the tokens took."""
    both = pairs(server, report, requests)
    ttft, itl = [], []
    for record, visit in both:
        assert len(record.token_times_s) == len(visit.token_times_s), "no token was lost or made up"
        seen, sent = record.timing, visit.token_times_s
        assert seen is not None
        due_s = report.start_s + record.arrival_s
        assert due_s <= visit.received_s, "nobody comes too early"
        ttft.append(abs(seen.ttft_s - (sent[0] - due_s)))
        gaps = [after - before for before, after in pairwise(sent)]
        itl += [abs(gap - real) for gap, real in zip(seen.itl_s, gaps) if real]
    tokens = sum(len(record.token_times_s) for record, _ in both)
    rate = report.summary().new_tokens_per_s
    assert rate is not None
    took_s = max(v.token_times_s[-1] for _, v in both) - min(report.start_s + r.arrival_s for r, _ in both)
    return {"ttft": median(ttft), "itl": median(itl), "took": abs(tokens / rate - took_s)}


@pytest.mark.parametrize("held", [[1] * 12, [1, 3, 1, 2, 4, 1]], ids=["a token a piece", "several in one"])
def test_ttft_itl_and_throughput_agree_with_the_log_of_the_server(held: list[int]) -> None:
    requests = questions(20, 20, 12)
    for _ in range(TRIES):
        with scripted_server(plan(held)) as server:
            report = measure(server.url, "m", poisson(requests, 25.0), count=lambda text: len(text.split()))
        assert not report.faults and not report.partial
        off = off_by(server, report, requests)
        if max(off.values()) < NEAR_S:
            break
    assert max(off.values()) < NEAR_S, off
    assert sum(each.pieces_with_several for each in report.asked) == 20 * sum(number > 1 for number in held)
    assert set(report.counted_by) == ({"usage"} if len(held) == 12 else {"usage and tokenizer"})
    assert all(record.prompt_tokens == 40 for record in report.log.requests), "as the server says"


def test_a_slow_tokenizer_makes_no_token_late() -> None:
    counts_s: list[float] = []

    def slow(text: str) -> int:
        counts_s.append(time.perf_counter())
        time.sleep(0.01)
        return len(text.split())

    with scripted_server(plan([2, 1, 2])) as server:
        report = measure(server.url, "m", poisson(questions(8, 20, 5), 100.0), count=slow)
    assert report.counted_by == {"usage and tokenizer": 8}
    assert min(counts_s) > report.start_s + max(record.ended_s or 0.0 for record in report.log.requests)
    assert min(counts_s) > max(visit.sent[-1][0] for visit in server.visits), "it is asked when all is over"


def test_a_slow_server_is_asked_no_less_and_its_queue_is_in_the_ttft() -> None:
    """Who comes at a given rate does not wait until the server has answered somebody else."""
    one_at_a_time = asyncio.Lock()

    async def slow(visit: Visit) -> None:
        visit.begin()
        async with one_at_a_time:
            await asyncio.sleep(0.03)
            visit.piece(" w")
        visit.finish()

    requests = questions(20, 20, 1)
    with scripted_server(slow) as server:
        report = measure(server.url, "m", bursts(requests, 1, 0.001))
    both = pairs(server, report, requests)
    last = max(both, key=lambda pair: pair[1].received_s)[1]
    there = sum(visit.token_times_s[0] > last.received_s for _, visit in both)
    assert there >= 10, "all have asked while most of them still wait"
    for record, visit in both:
        timing = record.timing
        assert timing is not None
        assert timing.ttft_s >= visit.token_times_s[0] - (report.start_s + record.arrival_s) >= 0
    longest = report.summary().ttft_s.largest
    assert longest is not None and longest > 20 * 0.03 - 0.02, "the last waits for all others"


def test_the_clock_runs_while_a_request_waits_for_its_turn_here() -> None:
    requests = questions(6, 20, 3)
    with scripted_server(plan([1, 1, 1])) as server:
        report = measure(server.url, "m", bursts(requests, 6, 1.0), most_at_once=1)
    both = sorted(pairs(server, report, requests), key=lambda pair: pair[1].received_s)
    for (_, before), (_, after) in pairwise(both):
        assert after.received_s > before.token_times_s[-1], "never more than one under way"
    for record, visit in both:
        assert record.arrival_s == 0 and record.timing is not None
        assert record.timing.ttft_s >= visit.token_times_s[0] - report.start_s
    assert max(each.late_s for each in report.asked) > sum(0.03 for _ in range(5))


def test_in_a_closed_loop_nobody_asks_before_the_own_answer() -> None:
    requests = questions(9, 20, 4)
    with scripted_server(plan([1, 2])) as server:
        report = measure(server.url, "m", ClosedLoop(requests, users=3, think_s=0.0))
    assert not report.faults and len(report.log.requests) == 9
    assert report.summary().in_system.most == 3
    for user in range(3):
        mine = [(report.log[r.name], visit_of(server, r)) for r in requests[user::3]]
        for (earlier, _), (later, visit) in pairwise(mine):
            assert later.arrival_s >= earlier.ended_s == earlier.token_times_s[-1]
            assert visit.received_s >= report.start_s + later.arrival_s


def test_what_is_asked_is_greedy_streamed_and_as_long_as_planned() -> None:
    (request,) = questions(1, 20, 5, seed=3)
    with scripted_server(plan([1])) as server:
        measure(server.url, "the model", [Arrival(0.0, request)], api_key="secret")
    chat = {
        "model": "the model",
        "messages": [{"role": "user", "content": prompt_text(request)}],
        "max_tokens": 5,
        "stream": True,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }
    assert server.visits[1].body == chat
    assert "POST /v1/chat/completions " in server.visits[1].head and "Bearer secret" in server.visits[1].head
    with scripted_server(plan([1])) as server:
        measure(f"{server.url}/v1/", "m", [Arrival(0.0, request)], chat=False, warm_up=False, text_of=lambda r: "Hi")
    (visit,) = server.visits
    assert "POST /v1/completions " in visit.head and visit.body["prompt"] == "Hi" and "messages" not in visit.body
    assert "Authorization" not in visit.head


def test_no_proxy_stands_between_this_machine_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with scripted_server(plan([1])) as server:
        assert not measure(server.url, "m", poisson(questions(1, 20, 1), 1.0)).faults


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("0.0.0.0", True), ("[::]", True), ("10.0.0.1", False),
     ("127.0.0.1.example.org", False)],
)  # fmt: skip
def test_an_address_of_this_machine_is_known_as_one(host: str, here: bool) -> None:
    """0.0.0.0 is what servers say they listen on, so it is copied from their output."""
    assert Endpoint(f"http://{host}:8000", "m").on_this_machine == here


def test_prompts_have_as_many_words_as_tokens_and_no_two_are_alike() -> None:
    for length in (1, 14, 15, 200):
        texts = [prompt_text(request) for request in questions(50, length, 1)]
        assert {len(text.split()) for text in texts} == {length}
        assert length < 14 or len(set(texts)) == 50
        assert texts == [prompt_text(request) for request in questions(50, length, 1)]
        assert texts != [prompt_text(request) for request in questions(50, length, 1, seed=1)]


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Content"])
def test_a_server_that_refuses_to_count_is_asked_without(status: str) -> None:
    async def old(visit: Visit) -> None:
        if "stream_options" in visit.body:
            visit.whole(status, '{"error": {"message": "unknown field stream_options"}}')
            return
        visit.begin()
        for text in (" a b", " c"):
            visit.piece(text)
        visit.chunk(event(None, finish_reason="stop"))
        visit.end()

    for count, by, times in ((None, "pieces", 2), (lambda text: len(text.split()), "tokenizer", 3)):
        with scripted_server(old) as server:
            report = measure(server.url, "m", poisson(questions(3, 20, 3), 50.0), count=count)
        assert not report.usage_asked and report.counted_by == {by: 3}
        assert [(len(r.token_times_s), r.prompt_tokens) for r in report.log.requests] == [(times, 20)] * 3
        assert not any(each.prompt_counted for each in report.asked)


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_it_works_where_a_loop_is_running_already() -> None:
    async def cell() -> Report:
        return measure(server.url, "m", poisson(questions(3, 20, 2), 100.0))

    with scripted_server(plan([1, 1])) as server:
        assert not asyncio.run(cell()).faults


def test_ctrl_c_ends_it_and_gives_what_was_measured_so_far() -> None:
    import _thread

    requests = questions(60, 20, 3)
    seen: list[tuple[int, int]] = []

    def interrupt_after_ten(ended: int, wrong: int) -> None:
        seen.append((ended, wrong))
        if ended == 10:
            _thread.interrupt_main()

    with scripted_server(plan([1, 1, 1]), plan([1], first_s=5.0)) as server:
        begun = time.perf_counter()
        arrivals = [*poisson(requests[:-1], 40.0), Arrival(1000.0, requests[-1])]
        report = measure(server.url, "m", arrivals, on_progress=interrupt_after_ten)
        assert time.perf_counter() - begun < 60
        stopped_s = time.perf_counter() - report.start_s
    assert report.partial and report.planned == 60 > len(report.log.requests) >= len(report.asked) >= 10
    assert seen[:10] == [(number, 0) for number in range(1, 11)]
    run = report.summary()
    assert run.duration_s is not None and 0.9 * stopped_s - 1 < run.duration_s <= stopped_s
    assert run.finished == len(report.asked) and run.unfinished == run.arrived - run.finished > 0
    assert run.ttft_s.samples == run.finished, "what was under way counts for nothing"
    assert not [thread for thread in threading.enumerate() if thread.name == "load test"]


def test_the_silence_before_ctrl_c_belongs_to_a_run_that_was_stopped() -> None:
    """A few answers, then a server that hangs: that is when one presses it, and more than once."""
    import _thread

    def twice() -> None:
        _thread.interrupt_main()
        time.sleep(0.001)
        _thread.interrupt_main()

    with scripted_server(plan([1]), plan([1]), plan([1], first_s=60.0)) as server:
        threading.Timer(1.5, twice).start()
        report = measure(server.url, "m", bursts(questions(3, 20, 1), 1, 0.05), warm_up=False)
    run = report.summary()
    assert report.partial and (run.finished, run.unfinished) == (2, 1) and run.duration_s >= 1.3


def test_in_a_closed_loop_the_end_of_an_answer_is_not_in_the_next_ttft() -> None:
    async def lingers(visit: Visit) -> None:
        visit.begin()
        visit.piece(" w")
        await visit.writer.drain()
        await asyncio.sleep(1.0)
        visit.finish()

    with scripted_server(lingers) as server:
        report = measure(server.url, "m", ClosedLoop(questions(3, 20, 1), users=1, think_s=0.0))
    assert not report.faults and max(record.timing.ttft_s for record in report.log.requests) < 0.8


def test_as_many_are_under_way_as_have_come_and_a_slow_warm_up_is_over_by_then() -> None:
    """A pool of connections, or a clock that began too early, would be in the TTFT of everybody."""
    with scripted_server(plan([1], first_s=0.5), *[plan([1], first_s=2.0)] * 40) as server:
        report = measure(server.url, "m", bursts(questions(40, 20, 1), 40, 1.0))
    assert not report.faults
    begun = [visit.received_s for visit in server.visits[1:]]
    assert max(begun) < min(visit.sent[0][0] for visit in server.visits[1:]), "all were there before one was answered"
    assert report.start_s > server.visits[0].sent[0][0] and report.summary().in_system.most == 40


def test_who_comes_first_need_not_stand_first() -> None:
    first, second = questions(2, 20, 1)
    with scripted_server(plan([1])) as server:
        report = measure(server.url, "m", [Arrival(2.0, second), Arrival(0.0, first)])
    assert [record.name for record in report.log.requests] == [first.name, second.name]
    assert max(each.late_s for each in report.asked) < 1.5


def test_no_visitor_brings_the_cookie_of_another() -> None:
    async def gives_a_cookie(visit: Visit) -> None:
        visit.begin(extra="Set-Cookie: who=me; Path=/\r\n")
        visit.piece(" w")
        visit.finish()

    with scripted_server(gives_a_cookie) as server:
        assert not measure(server.url, "m", bursts(questions(3, 20, 1), 1, 0.01)).faults
    assert not any("cookie" in visit.head.lower() for visit in server.visits)


def test_the_figure_shows_what_a_client_sees() -> None:
    scripts = (plan([1] * 5), answers("429 Slow", '"down"'), after_two(lambda visit: visit.end()))
    with scripted_server(*scripts) as server:
        report = measure(server.url, "m", ClosedLoop(questions(3, 20, 5), 1, 0.0), warm_up=False)
    alt = states(report.log).alt
    first, refused, broken = (alt.split(f"r{n}: ")[1].split(".  r")[0].split(". r")[0] for n in range(3))
    assert first.startswith("waiting ") and "decode" in first and first.endswith("finished")
    assert refused == "refused" and broken.startswith("waiting") and "cancelled" in broken
