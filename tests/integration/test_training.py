"""Train from the queue, kill what trains, and open what was trained."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from string import ascii_letters

import pytest

from gpudeck.accel.result import read
from tests.integration.endpoint import serving
from tests.integration.shell import Shell
from tests.support import eventually

STEPS = 8
SMALL = ("batch=2", "tokens=32", f"steps={STEPS}", "evaluate=8", "checkpoint=8", "held_out=0.02")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.jsonl"
    file.write_text("".join(f'{{"text": "{n} and {n + 1} are numbers"}}\n' for n in range(300)))
    return file


def test_a_model_is_trained_from_the_queue_and_served(
    sh: Shell, text: Path, tmp_path: Path
) -> None:
    from gpudeck.accel.serving.checkpoint import Checkpoint
    from gpudeck.accel.serving.families import read_config

    out = tmp_path / "out"
    said = sh("run", "train", f"data={text}", "model=tiny", f"out={out}", *SMALL, "--wait")
    assert "pass" in said
    job = sh.json("jobs", "--limit", "1")[0]["id"]
    result = sh.json("results", str(job))
    curves = {curve["name"]: curve for curve in result["curves"]}
    assert curves["loss"]["steps"] == list(range(1, STEPS + 1))
    assert curves["held-out loss"]["steps"] == [0, STEPS]
    assert curves["loss"]["values"][-1] < curves["loss"]["values"][0] - 0.5
    assert result["verdict"] == "pass"
    assert {"loss", "held-out loss", "speed"} <= {one["name"] for one in result["figures"]}
    # the folder is one that is served
    config = read_config(out)
    assert (config.vocabulary, config.ends) == (320, (256,))
    Checkpoint(out, config)


def test_the_best_of_several_trained_models_is_the_first_row_of_the_runs(
    sh: Shell, text: Path, tmp_path: Path
) -> None:
    from gpudeck.app.runs.run_curves import read_run
    from gpudeck.app.runs.run_table import overlaid_rows, sorted_rows
    from gpudeck.scheduler.client import Client

    for steps in ("4", "12", "8"):
        sh(
            "run", "train", f"data={text}", "model=tiny", f"out={tmp_path / steps}", *SMALL,
            f"steps={steps}", "--wait",
        )  # fmt: skip
    found = sh.json("runs", "--search", "train", "--sort", "loss", "--limit", "3")
    assert [row["parameters"]["steps"] for row in found] == ["12", "8", "4"]
    losses = [row["values"]["loss"] for row in found]
    for row in found:
        curves = {one["name"]: one for one in sh.json("results", str(row["job"]))["curves"]}
        assert row["values"]["loss"] == curves["loss"]["values"][-1]
    assert sh("runs", "--search", "train", "--sort", "loss").splitlines()[1].split()[0] == str(
        found[0]["job"]
    )
    # the table of the Jobs page has the same order
    with Client() as client:
        runs = [read_run(client, row["job"]) for row in reversed(found)]
        rows = overlaid_rows([client.job(run.job) for run in runs], runs)
    assert [row.job.id for row in sorted_rows(rows, "loss")] == [row["job"] for row in found]
    assert sorted(row.values["loss"] for row in rows) == losses


@pytest.mark.slow
def test_a_run_goes_on_from_the_queue_and_refuses_other_settings(
    sh: Shell, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sh("run", "train", f"data={text}", "model=tiny", f"out={out}", *SMALL, "--wait")
    sh("run", "train", f"data={text}", "model=tiny", f"out={out}", *SMALL, "--wait")
    assert "continued after step 8" in newest_log(sh), "and nothing is left to do"
    settings = str(out / "settings.toml")
    sh("run", "train", "--settings", settings, f"out={out}", "--wait")
    sh(
        "run", "train", f"data={text}", "model=tiny", f"out={out}", *SMALL, "seed=1", "--wait",
        status=1,
    )  # fmt: skip
    assert "holds a run with other settings (seed)" in newest_log(sh)


def test_a_model_in_a_folder_learns_chats_from_the_queue(sh: Shell, tmp_path: Path) -> None:
    from gpudeck.accel.serving import tiny
    from gpudeck.accel.serving.transformer import load

    base, out, chats = tmp_path / "base", tmp_path / "out", tmp_path / "chats.jsonl"
    tiny.make(base)
    chat = [{"role": "user", "content": "Which GPU?"}, {"role": "assistant", "content": "GPU 1."}]
    chats.write_text(f"{json.dumps({'messages': chat})}\n" * 60)
    sh(
        "run",
        "train",
        f"data={chats}",
        f"base={base}",
        "method=lora",
        f"out={out}",
        *SMALL,
        "--wait",
    )
    result = sh.json("results", str(sh.json("jobs", "--limit", "1")[0]["id"]))
    curves = {curve["name"]: curve["values"] for curve in result["curves"]}
    assert curves["loss"][-1] < curves["loss"][0]
    assert load(out).config.vocabulary == 512
    assert (out / "adapter" / "adapter_config.json").is_file()
    assert (out / "tokenizer_config.json").read_bytes() == (
        base / "tokenizer_config.json"
    ).read_bytes()
    command = re.search(r"Try it with: gpudeck serve (\S+)", newest_log(sh))
    assert command is not None
    home = Path(os.environ["GPUDECK_HOME"])
    with serving(home, command[1], "--cpu", "--cache-tokens", "512") as served:
        asked = {"model": "out", "messages": chat[:1], "max_tokens": 4}
        status, _, answer = served.ask("/v1/chat/completions", asked)
    assert status == 200
    assert answer["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("steps = ", "is not valid TOML"),
        ("steps = {a = 1}", "gives steps a value that is no text"),
        ("stops = 3", "train has no parameter 'stops'"),
        ("steps = 0", "steps is a whole number from 1"),
    ],
)
def test_wrong_settings_are_refused(sh: Shell, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    assert why in sh.fails("run", "train", "--settings", str(tmp_path / "a.toml"), status=2)
    assert "cannot read" in sh.fails("run", "train", "--settings", "/no", status=2)


def test_broken_data_is_refused_with_its_line(sh: Shell, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "a"}\n{"text": \n')
    sh("run", "train", f"data={bad}", *SMALL, "--wait", status=1)
    assert "bad.jsonl, line 2: it is not valid JSON" in newest_log(sh)


def newest_log(sh: Shell) -> str:
    return sh("logs", str(sh.json("jobs", "--limit", "1")[0]["id"]))


KEPT_IN_OTHER_WAYS = ("--given", "moments=8bit", "average=0.99")


@pytest.mark.parametrize("more", [(), pytest.param(KEPT_IN_OTHER_WAYS, marks=pytest.mark.slow)])
def test_killed_and_paused_runs_are_equal_to_the_undisturbed_one(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    said = kills(tmp_path, "--kills", "3", "--steps", "20", "--longest", "0.5", *more)
    assert said["equal_rows"]
    assert said["equal_weights"]
    assert said["killed"] + said["paused"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_change_no_bit(tmp_path: Path) -> None:
    said = kills(tmp_path, "--kills", "100", "--steps", "1500")
    assert said["equal_rows"]
    assert said["equal_weights"]
    assert said["killed"] + said["paused"] >= 50


def kills(folder: Path, *options: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training_kills", str(folder), *options],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    said: dict[str, int] = json.loads(done.stdout)
    return said


@pytest.mark.slow
def test_the_assistant_says_how_a_training_goes_which_run_is_best_and_when_it_ends(
    sh: Shell, text: Path, tmp_path: Path
) -> None:
    for name, rate in (("good", "0.003"), ("bad", "0.0001")):
        out = tmp_path / name
        sh("run", "train", f"data={text}", "model=tiny", f"out={out}", f"rate={rate}", *SMALL,
           "--wait")  # fmt: skip
    losses = {
        job["id"]: min(curve["values"])
        for job in sh.json("jobs")  # others of this daemon were trained before
        if job["spec"]["name"] == "train" and job["state"]["type"] == "done"
        for curve in sh.json("results", str(job["id"]))["curves"]
        if curve["name"] == "loss"
    }
    # its rate is so low that its loss is still the first one when it is asked about, and its text
    # is not so uniform that some batches have a low one
    noise = tmp_path / "noise.txt"
    letters = Random(1)
    noise.write_text("".join(letters.choices(ascii_letters, k=20000)))
    sh("run", "train", f"data={noise}", "model=tiny", f"out={tmp_path / 'going'}", "batch=2",
       "tokens=32", "steps=100000", "rate=1e-9")  # fmt: skip
    going = sh.json("jobs", "--limit", "1")[0]["id"]
    eventually(lambda: '"step":' in sh("logs", str(going)))
    told = sh("ask", "how is my training going")
    assert "running" in told
    assert f"Job {going} needs about " in told
    best = sh("ask", "which run is best").splitlines()[0]
    lowest = re.fullmatch(
        r"Job (\d+) \(train\) has the lowest value of all: loss \d\.\d{3}\.", best
    )
    assert lowest is not None and losses[int(lowest[1])] == min(losses.values())
    assert f"Job {going} needs about " in sh("ask", "when does it end")
    assert f"Job {going} needs about " in sh("ask", "when is my training done?")
    sh("cancel", str(going))


def test_sigterm_leaves_a_checkpoint_and_a_result_with_the_losses(
    tmp_path: Path, text: Path
) -> None:
    result, out = tmp_path / "result.json", tmp_path / "out"
    argv = [f"--{part}" for part in (*SMALL, f"data={text}", f"out={out}", "steps=100000")]
    argv = [part.replace("held_out", "held-out") for part in argv]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gpudeck.accel.workloads.train", *argv],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "GPUDECK_RESULT": str(result),
             "GPUDECK_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        next(line for line in process.stdout if '"step":8,"held_out"' in line)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert "with a checkpoint" in process.stderr.read()
        assert process.wait() == 1
    left = read(result.read_bytes())
    assert str(left.verdict).startswith("fail: stopped after step")
    newest = max(int(p.name[5:]) for p in (out / "checkpoints").glob("step-*"))
    assert left.curves[0].steps[-1] == newest >= 8
