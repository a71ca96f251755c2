"""Test the commands that submit, list and follow jobs."""

from __future__ import annotations

import threading
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Done
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.integration.shell import Shell, start_waiting
from tests.support import eventually

WAIT_S = 60.0


def test_submit_keeps_every_argument_of_the_command(
    sh: Shell, shared: Client, tmp_path: Path
) -> None:
    words = python("import sys; print(sys.argv[1:])", "--gpus", "9", "--", "-x", "", "a b")
    out = sh("submit", "--name", "mine", "--cwd", str(tmp_path), "--", *words)
    number = int(out.split()[1])
    assert out.startswith(f"job {number} (mine): ")
    job = shared.wait(number, WAIT_S)
    assert job.spec.argv == tuple(words)
    assert job.spec.cwd == str(tmp_path)
    assert sh("logs", str(number)) == "['--gpus', '9', '--', '-x', '', 'a b']\n"


def test_exit_status_of_submit_and_wait_is_that_of_the_job(sh: Shell) -> None:
    assert sh.json("submit", "--", "true")["spec"]["argv"] == ["true"]
    assert "done" in sh("submit", "--wait", "--", "true")
    number = sh.json("submit", "--", "sh", "-c", "echo no data; exit 3")["id"]
    sh("wait", str(number), status=1)
    sh("submit", "--wait", "--", "false", status=1)
    assert sh.json("wait", str(sh.json("submit", "--", "true")["id"]))["state"]["type"] == "done"


def test_jobs_searches_by_text_status_group_device_and_time(sh: Shell, shared: Client) -> None:
    one = shared.wait(
        shared.submit(["false"], name="needle", group="haystack", notes="a long one").id
    )
    other = shared.wait(shared.submit(["true"], name="needle", group="haystack").id)
    assert [j["id"] for j in sh.json("jobs", "--search", "NEEDLE", "--since", "1h")] == [
        other.id,
        one.id,
    ]
    assert [j["id"] for j in sh.json("jobs", "--search", "long needle")] == [one.id]
    assert [
        j["id"]
        for j in sh.json(
            "jobs", "--status", "failed,lost", "--group", "haystack", "--limit", "5000"
        )
    ] == [one.id]
    assert (
        sh.json("jobs", "--group", "haystack", "--until", "1d")
        == sh.json("jobs", "--device", "0", "--search", "needle")
        == []
    )
    assert sh("jobs", "--search", "no such words") == "No jobs match.\n"
    assert "needle" in sh("jobs", "--group", "haystack", "--status", "done")
    for wrong in (("--status", "broken"), ("--since", "soon"), ("--active", "--status", "done")):
        assert "gpudeck" in sh("jobs", *wrong, status=2)


def test_jobs_lists_the_newest_first_up_to_the_limit(sh: Shell, shared: Client) -> None:
    numbers = [sh.json("submit", "--wait", "--name", f"n{i}", "--", "true")["id"] for i in range(3)]
    assert [j["id"] for j in sh.json("jobs", "--limit", "2")] == numbers[:0:-1]
    table = sh("jobs", "--limit", "3").splitlines()
    assert table[0].split()[:3] == ["JOB", "NAME", "STATE"]
    assert [line.split()[1] for line in table[1:]] == ["n2", "n1", "n0"]
    assert [line.split().count("done") for line in table[1:]] == [1, 1, 1], (
        "the state is shown once"
    )
    assert sh.json("jobs", "--active") == []
    waiting = shared.submit(["sleep", "600"])
    assert [j["id"] for j in sh.json("jobs", "--active")] == [waiting.id]
    assert f"job {waiting.id}: stopping" in sh("cancel", str(waiting.id))
    shared.wait(waiting.id, WAIT_S)


def test_logs_follow_a_job_to_its_end(sh: Shell, shared: Client, tmp_path: Path) -> None:
    code = """if True:
        import os, sys, time
        print('first')
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        print('last')"""
    job = shared.submit(python(code, tmp_path / "go"))
    eventually(lambda: log_of(job))
    threading.Timer(0.6, (tmp_path / "go").touch).start()
    assert sh("logs", "-f", str(job.id)) == "first\nlast\n"
    assert isinstance(shared.job(job.id).state, Done)


def test_wait_survives_a_restart_of_the_daemon(cpu_home: Path) -> None:
    over = cpu_home / "over"
    with Client() as deck:
        job = ready(deck).submit(["sh", "-c", f"until [ -e {over} ]; do sleep 0.2; done"])
        running(deck, job)
        waiting = start_waiting(job)
        kill_daemon()
    over.touch()  # not earlier: `communicate` does not return what was read before
    out, err = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 0, err
    assert "done" in out


def test_cancel_several_jobs_arrays_and_groups(sh: Shell, shared: Client, tmp_path: Path) -> None:
    held, other = shared.submit(["true"], hold=True), shared.submit(["true"], hold=True)
    assert f"job {held.id}: On hold; to release it" in sh("pause", str(held.id))
    foretold = sh("submit", "--dry-run", "--after", str(held.id), "true")
    assert foretold == f"Waiting for job {held.id} (true); when it starts is not known\n"
    assert (
        sh("cancel", str(held.id), str(other.id)) == f"jobs {held.id} and {other.id}: cancelled\n"
    )
    assert (
        sh("cancel", f"{held.id}-{other.id}")
        == "Nothing to cancel: none of these jobs is waiting or running.\n"
    ), "again is no error"
    assert (
        sh("cancel", str(held.id), f"{other.id}-1000000000")
        == f"job {held.id}: had already ended\n"
    )
    assert "there is no job 999999" in sh.fails("cancel", str(held.id), "999999")
    assert "there is no job 999999" in sh.fails("cancel", "--array", "999999")
    assert f"job {held.id} is not part of an array" in sh.fails("cancel", "--array", str(held.id))
    array = sh.json("submit", "--array", "1-7", "--hold", "--group", "sweep", "--", "true")
    first, last = array[0]["id"], array[6]["id"]
    assert (
        sh("cancel", f"{first}-{first + 1}", str(last))
        == f"jobs {first}, {first + 1} and {last}: cancelled\n"
    )
    assert sh.json("cancel", "--array", str(last))["cancelled"] == [
        first + 2,
        first + 3,
        first + 4,
        first + 5,
    ]
    sh("submit", "--array", "1-6", "--hold", "--group", "sweep", "--", "true")
    assert sh("cancel", "--group", "sweep") == f"6 jobs from {last + 1} to {last + 6}: cancelled\n"
    assert "the token file" in sh.fails(
        "cluster", "add", "ray:lab", "http://head:8265", "--token-file", str(tmp_path / "none")
    )
    assert "no cluster is called ray:lab. To add it" in sh.fails(
        "submit", "--on", "ray:lab", "true"
    )


def test_a_token_that_would_cross_the_network_unencrypted_is_warned_about(
    sh: Shell, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    words = "sent unencrypted"
    for name, address, exposed in (
        ("ray:lab", "http://head.invalid:8265", True),
        ("ray:near", "http://127.0.0.1:9", False),
        ("ray:safe", "https://head.invalid", False),
    ):
        sh("cluster", "add", name, address, "--token-file", str(token))
        row = next(row for row in sh("cluster").splitlines() if row.startswith(name))
        assert (words in row) is exposed
    shown = sh("cluster", "add", "ray:lab", "http://head.invalid:8265", "--token-file", str(token))
    assert words in shown and "https://" in shown
    assert words not in sh("cluster", "add", "ray:lab", "http://head.invalid:8265")
    for name in ("ray:lab", "ray:near", "ray:safe"):
        sh("cluster", "remove", name)


def test_a_cluster_that_does_not_answer_is_listed_with_the_reason(sh: Shell) -> None:
    sh("cluster", "add", "ray:nowhere", "http://127.0.0.1:9")
    eventually(lambda: "ray:nowhere has not answered since" in sh("cluster"))
    assert "has not answered" in sh.json("status")["unavailable"]["ray:nowhere"]
    sh("cluster", "remove", "ray:nowhere")
    assert sh.json("status")["unavailable"] == {}


def test_jobs_logs_and_cancel_take_names(sh: Shell, shared: Client) -> None:
    first = shared.submit(["echo", "first"], name="my training")
    shared.wait(first.id, WAIT_S)
    second = shared.submit(["echo", "second"], name="my training")
    shared.wait(second.id, WAIT_S)
    other = shared.submit(["true"], name="my training again", hold=True)
    assert sh("logs", "my training") == "second\n"
    assert sh.json("logs", "my training")["job"] == second.id
    assert sh.json("jobs", "my training")["job"]["id"] == second.id
    assert "no job with the name my training waits or runs" in sh.fails("cancel", "my training")
    assert "there is no job with the name my" in sh.fails("logs", "my")
    assert "there is no job with the name my" in sh.fails("jobs", "my")
    twin = shared.submit(["true"], name="my training again", hold=True)
    line = sh.fails("cancel", "my training again")
    assert f"from job {other.id} to job {twin.id}" in line
    shared.cancel(twin.id)
    assert sh("cancel", "my training again") == f"job {other.id}: cancelled\n"


def test_a_job_is_printed_as_json_with_the_paths_of_its_artefacts(
    sh: Shell, shared: Client
) -> None:
    code = "import os, pathlib; (pathlib.Path(os.environ['GPUDECK_ARTEFACTS']) / 'model').touch()"
    number = shared.wait(shared.submit(python(code)).id, WAIT_S).id
    (artefact,) = sh.json("jobs", str(number))["artefacts"]
    assert Path(artefact).is_file() and Path(artefact).name == "model"
