"""Whatever a server does wrong is counted by its name, stops nobody else, and is in no number of the good answers."""

import asyncio
import gzip
import socket
from collections.abc import Callable

import pytest
from scripted_server import Script, Visit, after_two, answers, event, plan, scripted_server

from course_lib.serving.arrivals import ClosedLoop, poisson
from course_lib.serving.load_metrics import Targets
from course_lib.serving.loadtest import CannotMeasure, Timeouts, measure, questions
from course_lib.serving.record import Arrival
from course_lib.serving.request import Request


def sends(data: bytes) -> Callable[[Visit], None]:
    def send(visit: Visit) -> None:
        visit.chunk(data)
        visit.end()

    return send


async def says_nothing_and_goes(visit: Visit) -> None:
    pass


async def keeps_alive_for_ever(visit: Visit) -> None:
    visit.begin()
    while True:
        visit.chunk(b": still here\n\n")
        await visit.writer.drain()
        await asyncio.sleep(0.02)


async def talks_for_ever(visit: Visit) -> None:
    visit.begin()
    while True:
        visit.piece(" and")
        await visit.writer.drain()


async def sends_a_line_without_end(visit: Visit) -> None:
    visit.begin()
    visit.chunk(b"data: ")
    while True:
        visit.chunk(b"x" * 65536)
        await visit.writer.drain()


async def packs(visit: Visit) -> None:
    visit.begin(extra="Content-Encoding: gzip\r\n")
    visit.chunk(gzip.compress(event(" a")))
    visit.end()


async def is_empty(visit: Visit) -> None:
    visit.begin()
    visit.finish("stop", tokens=0)


async def counts_wildly(visit: Visit) -> None:
    visit.begin()
    visit.piece(" a")
    visit.finish(tokens=9_000_000)


async def is_not_http(visit: Visit) -> None:
    visit.raw(b"+PONG\r\n")


def redirected(visit: Visit) -> None:
    visit.raw(b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")


async def redirects(visit: Visit) -> None:
    redirected(visit)


FAULTS: dict[str, list[Script]] = {
    "HTTP 429": [answers("429 Too Many Requests", '{"error": {"message": "slow down"}}')],
    "HTTP 500": [answers("500 Oh", "<html>sorry", "text/html")],
    "HTTP 503": [answers("503 Busy", '{"detail": "queue full"}')],
    "HTTP 307": [redirects],
    "not streamed": [answers("200 OK", '{"choices": [{"message": {"content": "all at once"}}]}')],
    "dropped connection": [says_nothing_and_goes, is_not_http, after_two(lambda visit: None)],
    "ended early": [
        after_two(lambda visit: visit.end()), after_two(sends(b'data: {"choices": [{"de')),
        answers("200 OK", "<html>log in</html>", "text/html"),
    ],
    "invalid JSON": [after_two(sends(b"data: {nonsense}\n\n"))],
    "error in the stream": [
        after_two(sends(b'data: {"error": {"message": "out of memory"}}\n\n')),
        after_two(sends(b'data: {"error": "x"}\n\n')),
    ],
    "unknown event": [after_two(sends(b'data: {"hello": 1}\n\n'))],
    "no first token in time": [keeps_alive_for_ever],
    "no end in time": [after_two(lambda visit: None, wait_s=5.0)],
    "endless stream": [talks_for_ever, counts_wildly],
    "event too long": [sends_a_line_without_end],
    "packed stream": [packs],
    "no token": [is_empty],
}  # fmt: skip


def test_every_fault_is_counted_by_its_name_and_is_in_no_number_of_the_good_ones() -> None:
    scripts = [script for each in FAULTS.values() for script in each]
    good = plan([1, 2, 1])
    requests = questions(2 * len(scripts), 20, 4)
    both = [script for wrong in scripts for script in (wrong, good)]
    limits = Timeouts(first_token_s=0.8, whole_s=1.2)
    with scripted_server(*both) as server:  # one at a time, so that who gets which script is known
        report = measure(server.url, "m", ClosedLoop(requests, 1, 0.0), timeouts=limits, warm_up=False)
    assert report.faults == {name: len(scripts) for name, scripts in FAULTS.items()}
    names = [name for name, scripts in FAULTS.items() for _ in scripts]
    for name, wrong, right in zip(names, requests[::2], requests[1::2]):
        record, after = report.log[wrong.name], report.log[right.name]
        assert record.outcome == ("refused" if name.startswith("HTTP") else "cancelled"), name
        assert record.why.startswith(name) and record.why.isprintable() and len(record.why) < 300
        assert record.token_times_s == [] and record.ended_s is not None
        assert after.outcome == "finished" and len(after.token_times_s) == 4, f"the one after {name}"
    run = report.summary(Targets(ttft_s=10.0))
    assert run.finished == run.ttft_s.samples == run.tpot_over_requests_s.samples == run.met == len(scripts)
    assert run.itl_over_tokens_s.samples == 3 * len(scripts)
    assert run.refused + run.cancelled == run.without_token == len(scripts)
    assert run.new_tokens_per_s == pytest.approx(4 * len(scripts) / run.duration_s)
    told = report.as_dict()
    assert told["faults"] == dict(report.faults) and told["partial"] is False
    assert (told["waiting"], told["busy_share"], told["blocks_used_share"]) == (None, None, None), "nobody can see them"


def test_the_first_token_has_a_limit_of_its_own() -> None:
    limits = Timeouts(first_token_s=0.5, whole_s=60.0)
    with scripted_server(plan([1] * 3, gap_s=0.3), keeps_alive_for_ever) as server:
        report = measure(server.url, "m", ClosedLoop(questions(2, 20, 3), 1, 0.0), timeouts=limits, warm_up=False)
    slow, silent = report.log.requests
    assert slow.outcome == "finished" and slow.token_times_s[-1] > 0.5, "it may take longer than the first"
    assert silent.why == "no first token in time" and silent.ended_s is not None
    assert 0.5 <= silent.ended_s - silent.arrival_s < 50


def test_a_server_that_is_not_there_is_said_before_the_run_and_counted_during_it() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{probe.getsockname()[1]}"
        arrivals = poisson(questions(3, 5, 1), 100.0)
        with pytest.raises(CannotMeasure, match="no connection") as error:
            measure(nowhere, "m", arrivals)
        assert error.value.unreachable
        report = measure(nowhere, "m", arrivals, warm_up=False)
        assert report.faults == {"no connection": 3} and report.summary().refused == 3
        probe.listen(0)  # now somebody is there, but takes no calls
        with socket.create_connection(probe.getsockname()):
            slow = measure(nowhere, "m", arrivals, warm_up=False, timeouts=Timeouts(connect_s=0.3))
    assert slow.faults == {"no connection in time": 3}


def test_a_machine_that_can_open_no_more_connections_says_so_of_itself() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as silent:  # who connects waits in its queue, and takes no descriptor of this process
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        at_once = [Arrival(0.0, request) for request in questions(40, 5, 1)]
        with socket.socket() as newest:
            limit = newest.fileno() + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        try:
            report = measure(address, "m", at_once, warm_up=False, timeouts=Timeouts(first_token_s=1.0))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert set(report.faults) == {"too many connections", "no first token in time"}, report.faults
    why = next(record.why for record in report.log.requests if record.outcome == "refused")
    assert "this machine" in why and "ulimit -n" in why


@pytest.mark.parametrize(
    ("status", "said"),
    [("401 Unauthorized", "wrong key"), ("404 Not Found", "no such model"), ("422 No", "unexpected field")],
)
def test_a_call_that_can_never_work_is_refused_in_the_words_of_the_server(status: str, said: str) -> None:
    refused = pytest.raises(CannotMeasure, match=f"HTTP {status[:3]}: {said}")
    with scripted_server(answers(status, f'{{"detail": "{said}"}}')) as server, refused as error:
        measure(server.url, "m", poisson(questions(3, 5, 1), 100.0), api_key="secret")
    assert not error.value.unreachable and "secret" not in str(error.value)


def test_a_server_that_is_only_busy_is_measured_all_the_same() -> None:
    with scripted_server(answers("503 Busy", '"later"'), plan([1])) as server:
        report = measure(server.url, "m", ClosedLoop(questions(4, 20, 1), 1, 0.0))
    assert report.warm_up == "HTTP 503: later" and report.faults == {"HTTP 503": 2}


def test_a_client_that_leaves_as_planned_is_no_fault() -> None:
    stays, leaves = questions(2, 20, 50)
    with scripted_server(after_two(lambda visit: None, wait_s=3.0), plan([1] * 3)) as server:
        arrivals = [Arrival(0.0, leaves, cancel_s=0.5), Arrival(0.6, stays)]
        report = measure(server.url, "m", arrivals, warm_up=False)
    record = report.log[leaves.name]
    assert not report.faults and (record.outcome, record.why) == ("cancelled", "its client has left")
    assert len(record.token_times_s) == 2 and report.log[stays.name].outcome == "finished"


def test_a_client_whose_timer_rings_early_leaves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows asyncio's timers are up to 16 ms early, so by the clock it is not yet time to leave."""
    new_event_loop = asyncio.new_event_loop

    def coarse() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        loop._clock_resolution = 0.2  # type: ignore[attr-defined]
        return loop

    monkeypatch.setattr(asyncio, "new_event_loop", coarse)
    leaving = [Arrival(0.3 * i, each, cancel_s=0.3 * i + 0.45) for i, each in enumerate(questions(4, 20, 50))]
    with scripted_server(plan([1], first_s=3.0)) as server:
        report = measure(server.url, "m", leaving, warm_up=False)
    assert not report.faults and {record.why for record in report.log.requests} == {"its client has left"}


WRONG_CALLS: dict[str, dict[str, object]] = {
    "'ftp://x' is no address": {"url": "ftp://x"},
    "^this is no address": {"url": "http://u:secret@x/"},
    "'http://x:99999' is no address": {"url": "http://x:99999"},
    "name of the model is empty": {"model": " "},
    "most_at_once must be at least 1": {"most_at_once": 0},
    "no request is to come": {"arrivals": []},
    "two requests have one name": {"arrivals": [Arrival(0.0, Request((0,), 1)), Arrival(1.0, Request((0,), 1))]},
    "Arrival.reads": {"arrivals": [Arrival(0.0, Request((0,), 1), reads=3)]},
    "API key": {"api_key": "a\nb"},
}


@pytest.mark.parametrize(("said", "wrong"), WRONG_CALLS.items())
def test_a_call_without_sense_is_refused_before_anything_is_sent(said: str, wrong: dict[str, object]) -> None:
    call = {"url": "http://127.0.0.1:9", "model": "m", "arrivals": poisson(questions(1, 1, 1), 1.0)} | wrong
    with pytest.raises(ValueError, match=said):
        measure(**call)  # type: ignore[arg-type]
    for time_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="whole_s.* must be a number above 0"):
            Timeouts(whole_s=time_s)
