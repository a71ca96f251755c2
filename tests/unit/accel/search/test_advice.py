"""A language model proposes configurations as JSON; the search goes on whatever it answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

from gpudeck.accel import result as results
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.advice import Advisor, schema
from gpudeck.accel.search.advised import search_both
from gpudeck.accel.search.api import problem_of
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.journal import Entry, Journal, searches
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.space import Space
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Source
from gpudeck.accel.workloads import search
from gpudeck.accel.workloads.harness import serve
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
        assert len(kept.entries) == len(SPACE)
        by = {entry.by for entry in kept.entries if entry.state == "timed"}
    assert endpoint.asked and by == {"sample", "surrogate", "endpoint"}


def both(asks):
    """Search with an endpoint and without it; return what is told, and the journal of the first."""
    with journal() as kept, Crew(nursery(), torch.device("cpu")) as crew, torch.no_grad():

        def run(into, asked, budget):
            engine = Engine(night.TASK, TEMPLATE, into, crew, None, advisor=asked)
            engine.run(budget)
            engine.close()

        return search_both(run, kept, asks, Budget()), kept


def test_what_an_endpoint_cost_and_gained_is_told_beside_a_search_without_it(endpoint):
    wanted = [{"block": b, "fault": 0, "extra": 1} for b in night.BLOCKS]
    endpoint.said = json.dumps({"configurations": wanted})
    asks = advisor(endpoint)
    advice, kept = both(asks)
    with Journal(kept.problem, alone=True) as other:
        assert {entry.by for entry in other.entries} == {"sample", "surrogate"}
        assert advice.alone_us == other.timed[0][1]
    assert advice.tried == advice.alone_tried == len(SPACE)
    assert advice.proposed > 0 and advice.tokens == asks.tokens > 0 and advice.seconds > 0
    assert kept.timed[0][1] == min(advice.us, advice.alone_us)
    assert [problem.name for problem, _ in searches()] == [kept.problem.name]


def test_a_search_beside_an_endpoint_that_is_gone_says_so():
    advice, _ = both(Advisor("http://127.0.0.1:9/v1", "small", patience_s=1.0))
    assert "proposed nothing" in str(advice.text) and "refused" in str(advice.text)


@pytest.mark.slow
def test_a_workload_with_an_endpoint_tells_what_it_gained(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_RESULT", str(tmp_path / "result.json"))
    argv = [
        "--task=gelu", "--rows=32", "--columns=64", "--minutes=0.2", "--seconds=0.3",
        f"--endpoint=http://127.0.0.1:{endpoint.server_port}/v1", "--model=small",
    ]  # fmt: skip
    assert serve("search", search.work, argv) == 0
    found = results.read((tmp_path / "result.json").read_bytes())
    assert "with the language model" in str(found.reason)
