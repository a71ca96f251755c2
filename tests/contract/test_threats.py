"""The limits that the manual names are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpudeck.accel.serving import folder_template, template_process
from gpudeck.app.cli import files
from gpudeck.app.cli.system import restore
from gpudeck.app.runs import event_files, run_curves
from gpudeck.app.web import guard
from gpudeck.app.web import server as web_server
from gpudeck.assistant.library import hub, hub_search
from gpudeck.assistant.query import table
from gpudeck.assistant.serve import endpoint, requests, server
from gpudeck.assistant.serve.served_model import ServedModel
from gpudeck.assistant.tools import access_files, job_options, proposal_store, submit, targets
from gpudeck.scheduler.devices import trace
from gpudeck.scheduler.executors import containers
from gpudeck.scheduler.hosts import connection, decoder, tunnel
from gpudeck.scheduler.notices import courier, sender
from gpudeck.scheduler.protocol import tcp_peers, traffic, wire
from gpudeck.scheduler.protocol.destinations import MOST_DESTINATIONS
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.queue import admission, submission
from gpudeck.scheduler.suspension import helper_process
from gpudeck.scheduler.verbs import registry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/manual/threats.md").read_text(encoding="utf-8")
MIB = 2**20


@pytest.mark.parametrize(
    ("row", "limits"),
    [
        ("a chat template", [template_process.MOST_CPU_S, template_process.MOST_MEMORY / MIB,
                             folder_template.MOST_SOURCE, template_process.MOST_TEXT]),
        ("a hub", [hub.MOST_LISTED / MIB, hub.LISTED_S, hub.MOST_FILES, hub.MOST_BESIDE / MIB,
                   hub.MOST_MEMORY / 2**30]),
        ("a hub, when it is searched", [hub_search.MOST_BYTES / MIB, hub_search.PATIENCE_S]),
        ("event files of a run", [event_files.MOST_BYTES / MIB, run_curves.MOST_FILES]),
        ("another machine, its readings", [decoder.MAX_LINE / MIB, decoder.MAX_DEVICES,
                                           connection.MAX_NAMED, connection.SILENCE_S]),
        ("another machine, its queue", [tunnel.MAX_ANSWER / MIB, tunnel.ANSWER_S,
                                        wire.MAX_REPLY / MIB, wire.REPLY_S,
                                        wire.REPLY_RATE / 2**10]),
        ("a client of the served model", [server.MAX_CONNECTIONS, tcp_peers.PER_STRANGER,
                                          tcp_peers.STRANGERS, requests.MAX_BODY / MIB,
                                          endpoint.BODY_S, requests.MOST_NESTED,
                                          ServedModel.most_requests, 429]),
        ("a client of the daemon", [wire.MAX_MESSAGE / MIB, registry.MAX_VALUES,
                                    traffic.SMALL / 2**10, traffic.WHOLE_S]),
        ("waiting jobs of one user", [admission.MAX_LANES, admission.MAX_ALL_LANES,
                                      admission.OWN_LANES]),
        ("a user of a shared daemon", [traffic.MAX_CONNECTIONS, traffic.DESCRIPTORS,
                                       traffic.MAX_UNSENT / MIB, traffic.RATE, traffic.BURST,
                                       traffic.AT_ONCE]),
        ("a query over MCP", [table.MOST_NAMED]),
        ("an order over MCP", [submit.MOST_SHOWN, job_options.MOST_VALUE, targets.MAX_TOGETHER,
                               proposal_store.MOST_PENDING]),
        ("an access token", [access_files.MOST_TOKENS, access_files.MOST_ACTS]),
        ("a client of the page in the browser", [guard.MOST_PATH, web_server.MOST_POINTS]),
        ("a destination of notices", [MOST_DESTINATIONS, courier.TIMEOUT_S, courier.MAX_WAITING,
                                      courier.MOST_PRINTED, sender.MOST_MEMORY / MIB]),
        ("a recording", [trace.MOST_BYTES / 2**30, trace.MOST_LINE / MIB]),
        ("a backup", [restore.SPARED / MIB]),
        ("a file of settings, parameters", [files.MOST_READ / MIB]),
        ("a submission", [MAX_BATCH, submission.MAX_ARTEFACTS]),
        ("a container of a job", [admission.MAX_CHARACTERS, containers.REMOVE_S]),
        ("a suspension", [helper_process.CALL_S]),
    ],
)  # fmt: skip
def test_the_limits_of_the_manual_are_those_of_the_code(row: str, limits: list[float]) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {row} "))
    named = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", line)]
    assert named == limits
