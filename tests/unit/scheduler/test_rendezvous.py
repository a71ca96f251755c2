"""The processes of a job with several GPUs are told where they meet."""

from __future__ import annotations

import socket

from gpudeck.scheduler.executors.local import rendezvous


def test_a_job_with_several_gpus_gets_an_address_that_nobody_uses():
    found = rendezvous({}, 2)
    with socket.socket() as server:
        server.bind((found["MASTER_ADDR"], int(found["MASTER_PORT"])))
    assert rendezvous({}, 1) == rendezvous({}, 0) == {}


def test_what_the_job_says_itself_is_kept():
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        assert rendezvous({name: "1234"}, 8) == {}
