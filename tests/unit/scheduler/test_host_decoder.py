"""Test what is made of the lines that another machine sends, which may hold anything."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.scheduler.hosts import reader, ssh
from gpudeck.scheduler.hosts.decoder import InvalidMessage, Messages, Moment
from gpudeck.scheduler.protocol.absence import explain
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.settings import HostSettings
from tests.support import LACKS

NOW = 1_000_000.0


def device(**changes):
    return {
        "id": "GPU-1", "index": 0, "name": "H100", "kind": "nvidia", "values": {"util": 50.0},
    } | changes  # fmt: skip


def sent(*devices, **fields):
    return b"gpudeck1 " + json.dumps({"devices": list(devices), **fields}).encode() + b"\n"


def decoded(*lines) -> Moment:
    messages = Messages("lab1")
    (*before, moment) = [messages.add(line, NOW) for line in lines]
    assert not any(before) and moment is not None
    return moment


def test_the_reader_needs_python_3_6_only():
    ast.parse(Path(reader.__file__).read_text(), feature_version=(3, 6))


def test_the_readers_own_line_is_understood():
    rows = reader.Cpu().read()
    moment = decoded(sent(*rows, how="the kernel's counters", why="NVML: no library"))
    assert moment.devices[0].id == "lab1/cpu" and moment.devices[0].host == "lab1"
    assert str(moment.devices[0].note) == "no NVIDIA GPU can be read there: NVML: no library"
    assert moment.readings[0].values["mem_total"] > 2**20


def test_names_cannot_control_a_terminal():
    evil = "\x1b]0;owned\x07\x1b[2J\u202eH100\r\n" + "x" * 1000
    processes = [[1, evil, evil, None]]
    moment = decoded(
        sent(
            device(id=evil, name=evil, facts={evil: evil}, absent={"temp": evil})
            | {"processes": processes},
            how=evil,
            deck=evil,
        )
    )
    (found,), (reading,) = moment.devices, moment.readings
    process = reading.processes[0]
    texts = [found.id, found.name, *found.facts, *found.facts.values(), moment.how, moment.deck]
    for text in (*texts, reading.absent["temp"], process.name, process.user):
        assert text.isprintable() and len(text) <= 400


@pytest.mark.parametrize(
    "line",
    [
        b"gpudeck1 {}\n",
        b"gpudeck1 {\n",
        b"gpudeck1 what\n",
        b'gpudeck1 {"devices":' + b"[" * 5000 + b"\n",
        sent(device(index=-1)),
        sent(device(kind="toaster")),
        sent(device(), device()),
        sent(*(device(id=str(i)) for i in range(129))),
        sent(device(values={"util": 1.5})).replace(b"1.5", b"1e999"),
        b"gpudeck1 csv 1,2,3\n",
        b"gpudeck1 end\n",
        b"gpudeck1 none\n",
    ],
    ids=range(12),
)
def test_what_no_reader_sends_is_refused(line):
    with pytest.raises(InvalidMessage):
        Messages("lab1").add(line, NOW)


@given(st.binary(max_size=200))
def test_no_line_is_an_error_of_ours(body):
    for line in (body, b"gpudeck1 " + body, b"gpudeck1 csv " + body):
        try:
            moment = Messages("lab1").add(line, NOW)
        except InvalidMessage as e:
            assert str(e).isprintable()
        else:
            assert moment is None or moment.devices is not None


def test_unknown_fields_are_dropped():
    values = decoded(sent(device(values={"util": 1.0, "bogus": 2.0}))).readings[0].values
    assert values == {"util": 1.0}


def test_numbers_that_no_device_reads_are_dropped():
    evil = {"util": 1e308, "mem_used": -1.0, "temp": -5e307, "power": 250.0, "temp_margin": -3.0}
    processes = [[1, "python", "ada", 1e308], [2, "python", "ada", 2.0**30]]
    (reading,) = decoded(sent(device(values=evil) | {"processes": processes})).readings
    assert reading.values == {"power": 250.0, "temp_margin": -3.0}
    assert reading.absent["util"] == "it sent 1e+308"
    assert [process.memory for process in reading.processes] == [None, 2.0**30]
    with pytest.raises(InvalidMessage):
        decoded(sent(device() | {"processes": [[10**300, "python", "ada", None]]}))


def test_every_unit_of_a_reading_has_a_range():
    largest = dict.fromkeys(FIELDS, 1.0)
    assert decoded(sent(device(values=largest))).readings[0].values == largest


def test_a_machine_without_python_is_read_by_nvidia_smi():
    cells = "0, GPU-7, NVIDIA A100, 37, 5, 1024, 40960, 39936, 61, 250.5, 400.00, 100, 400, 1410, "
    row = f"gpudeck1 csv {cells}1215, [N/A], 550.54\n".encode()
    moment = decoded(row, row.replace(b" 0,", b" 1,").replace(b"-7", b"-8"), b"gpudeck1 end\n")
    found, reading = moment.devices[1], moment.readings[1]
    assert (found.id, found.index, found.facts["driver"]) == ("lab1/GPU-8", 1, "550.54")
    assert reading.values["mem_used"] == 2**30 and reading.values["power"] == 250.5
    assert reading.absent["fan"] == "nvidia-smi: [N/A]" and "no Python" in moment.how


def test_a_gpu_sleeps_since_it_was_first_found_asleep():
    messages = Messages("lab1")
    first = messages.add(b"gpudeck1 asleep\n", NOW)
    then = messages.add(b"gpudeck1 asleep\n", NOW + 60)
    assert first and then and first.readings[0].asleep == then.readings[0].asleep == NOW
    assert "sleeps" in str(explain(then.readings[0].otherwise))


def test_the_loop_of_sh_reads_nvidia_smi_where_there_is_no_python(tmp_path):
    cells = "0, GPU-7, A100, 37, 5, 1024, 40960, 39936, 61, 250.5, 400, 100, 400, 1, 1, 30, 550"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{cells}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    for name in ("sh", "sed", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name))
    command = ssh.reader_command("~/it's mine")
    process = subprocess.Popen(
        ["sh", "-c", command], env={"PATH": str(tmp_path)}, stdout=subprocess.PIPE
    )
    messages = Messages("lab1")
    assert process.stdout is not None
    assert messages.add(process.stdout.readline(), NOW) is None
    moment = messages.add(process.stdout.readline(), NOW)
    assert moment is not None and moment.devices[0].name == "A100"
    process.kill()
    process.stdout.close()
    process.wait()


def test_ssh_gets_no_agent_no_questions_and_no_option_from_an_address():
    words = ssh.reading_command(HostSettings("user@lab1", "~/other"))
    assert words[:2] == ["ssh", "-F"] and words[-2] == "user@lab1" and words[-3] == "--"
    assert "BatchMode=yes" in words and "ForwardAgent=no" in words


def test_the_drivers_library_is_read_by_its_own_signatures(tmp_path):
    if not shutil.which("gcc"):
        pytest.skip(f"{LACKS} gcc")
    source = Path(__file__).with_name("nvml_edge.c")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    process = subprocess.Popen(
        [sys.executable, "-S", reader.__file__, ""],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    moment = decoded(process.stdout.readline())
    process.stdin.close()  # the other side is gone
    assert process.wait(20) == 0
    process.stdout.close()
    h100, gb10 = moment.readings
    assert [(d.id, d.name) for d in moment.devices] == [
        ("lab1/GPU-a", "NVIDIA H100"), ("lab1/GPU-b", "NVIDIA GB10"),
    ]  # fmt: skip
    assert moment.devices[0].facts == {"driver": "550.54.15"} and moment.how == "NVML"
    assert h100.values == {
        "mem_used": 20 * 2.0**30, "mem_total": 80 * 2.0**30, "mem_free": 60 * 2.0**30,
        "util": 37.0, "mem_util": 12.0, "temp": 61.0, "power": 250.5, "power_limit": 400.0,
        "power_limit_min": 100.0, "power_limit_max": 450.0, "clock_sm": 1410.0,
        "clock_mem": 2619.0, "fan": 30.0,
    }  # fmt: skip
    assert [(p.pid, p.memory) for p in h100.processes] == [(1, 5 * 2.0**30), (2, None)]
    assert gb10.values["mem_total"] == psutil.virtual_memory().total, "shared with the CPU"
    assert gb10.absent["fan"] == "NVML: Not Supported" and gb10.values["temp"] == 62.0
