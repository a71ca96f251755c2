"""A language model proposes configurations as JSON; the search goes on whatever it answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.advice import Advisor, best_by, schema
from gpudeck.accel.search.api import problem_of
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.journal import Entry, Journal
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.space import Space
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Source
from tests.unit.accel.search import night

SPACE = Space({"block": night.BLOCKS, "fault": (0,), "extra": (0, 1)})
TEMPLATE = Template("plain", SPACE, lambda c: Source(night.__file__, "faulty", {"config": c}))


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))


@pytest.fixture
def endpoint():
    """A server that answers with `server.said`, and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = {
                "choices": [{"message": {"content": server.said}}],
                "usage": {"total_tokens": 7},
            }
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *given):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.said = [], "{}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def advisor(server):
    return Advisor(f"http://127.0.0.1:{server.server_port}/v1/", "small")


def journal():
    return Journal(problem_of(night.TASK, TEMPLATE, find_device()))


def test_only_new_configurations_of_the_space_are_taken(endpoint):
    known, new = {"block": 1, "fault": 0, "extra": 0}, {"block": 2, "fault": 0, "extra": 1}
    odd = {"block": 3, "fault": 0, "extra": 0}, {"block": 2}, {**new, "code": "import os"}
    endpoint.said = json.dumps({"configurations": [known, *odd, new, new]})
    asks = advisor(endpoint)
    with journal() as kept:
        kept.add(Entry(known, "timed", 5.0))
        assert asks.propose(SPACE, kept, 4) == [new]
    assert asks.tokens == 7 and asks.seconds > 0 and not asks.failure
    (asked,) = endpoint.asked
    assert asked["response_format"]["json_schema"]["schema"] == schema(SPACE)
    assert '"microseconds": 5.0' in asked["messages"][1]["content"]


@pytest.mark.parametrize("said", ["", "no JSON", "[]", '{"configurations": 3}', '{"code": "x"}'])
def test_any_other_answer_is_no_proposal_and_says_why(endpoint, said):
    endpoint.said = said
    asks = advisor(endpoint)
    with journal() as kept:
        assert asks.propose(SPACE, kept, 4) == [] and asks.failure
    gone = Advisor("http://127.0.0.1:9/v1", "small", patience_s=1.0)
    with journal() as kept:
        assert gone.propose(SPACE, kept, 4) == [] and gone.failure


def test_a_search_tries_what_the_endpoint_proposes_and_tells_who_proposed(endpoint):
    wanted = [{"block": b, "fault": 0, "extra": 1} for b in night.BLOCKS]
    endpoint.said = json.dumps({"configurations": wanted})
    with journal() as kept, Crew(nursery(), torch.device("cpu")) as crew, torch.no_grad():
        engine = Engine(night.TASK, TEMPLATE, kept, crew, None, advisor=advisor(endpoint))
        engine.run(Budget())
        engine.close()
        found = best_by(kept.entries)
        assert len(kept.entries) == len(SPACE)
    assert (
        endpoint.asked
        and found["endpoint"][0] > 0
        and {*found} == {"sample", "surrogate", "endpoint"}
    )
