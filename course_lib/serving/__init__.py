"""Many requests on one model.

`request.py` says what is asked for, `engine.py` reads with the model. `scheduler.py` decides who runs, and `server.py`
is the loop around it, with a real engine (`worker.py`) or a simulated one (`simulation.py`; what its steps cost is
found in `calibration.py`). `workload.py`, `arrivals.py` and `trace.py` say who comes when. A run leaves a log behind
(`record.py`), for `load_metrics.py` to sum up and `timeline.py` to draw. `snapshot.py` shows what lies in a cache.

Somebody else's server, over the network: `loadtest.py` asks it as `arrivals.py` says, and leaves the same log;
`endpoint.py` is its address, `client.py` one request, `event_stream.py` what comes back, `token_times.py` when which
tokens came, `prompt_text.py` what is asked. `transformers_server.py` starts one that is real.
"""

from course_lib.serving.engine import Engine
from course_lib.serving.record import Arrival, Log
from course_lib.serving.request import Request, Sequence
from course_lib.serving.scheduler import Continuous, Memory, OneAtATime, StaticBatches
from course_lib.serving.server import Server
from course_lib.serving.simulation import CostModel, simulate
from course_lib.serving.worker import serve

__all__ = [
    "Arrival",
    "Continuous",
    "CostModel",
    "Engine",
    "Log",
    "Memory",
    "OneAtATime",
    "Request",
    "Sequence",
    "Server",
    "StaticBatches",
    "serve",
    "simulate",
]
