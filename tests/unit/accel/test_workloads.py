"""The workloads as jobs: real processes, the progress and result protocols, and every way to fail
in one line."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel import result as results
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.primitives.gemm.api import run as multiplied
from gpudeck.accel.primitives.gemm.operands import arrange
from gpudeck.accel.result import Check
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.workloads import attention as attention_workload
from gpudeck.accel.workloads import catalog, distributed, gemm, linear_attention, precision
from gpudeck.accel.workloads import copy as copy_workload
from gpudeck.accel.workloads.check import Oracle
from gpudeck.accel.workloads.grid import Shape
from gpudeck.accel.workloads.harness import main, serve
from gpudeck.accel.workloads.inputs import fresh
from gpudeck.accel.workloads.options import parse
from gpudeck.accel.workloads.task import Task
from gpudeck.scheduler.protocol import progress as protocol

SMALL = {
    "attention": {
        "batch": "1",
        "heads": "4",
        "kv_heads": "2",
        "seq": "96",
        "head_dim": "16",
        "causal": "yes",
        "dtype": "float32",
        "seconds": "0.4",
    },
    "gemm": {"size": "64", "dtype": "float32", "seconds": "0.4"},
    "precision": {
        "rows": "40",
        "inputs": "64",
        "outputs": "32",
        "recipe": "block",
        "seconds": "0.2",
    },
    "linear_attention": {
        "tokens": "70",
        "heads": "2",
        "head_dim": "8",
        "dtype": "float32",
        "seconds": "0.2",
    },
    "distributed": {
        "ranks": "3",
        "seq": "100",
        "head_dim": "8",
        "dtype": "float32",
        "seconds": "0.2",
    },
    "copy": {"mib": "1", "seconds": "0.4"},
}


RUN = {
    "attention": lambda argv: serve("attention", attention_workload.work, argv),
    "gemm": lambda argv: main("gemm", gemm.prepare, argv),
    "precision": lambda argv: main("precision", precision.prepare, argv),
    "linear_attention": lambda argv: main("linear_attention", linear_attention.prepare, argv),
    "distributed": lambda argv: main("distributed", distributed.prepare, argv),
    "copy": lambda argv: main("copy", copy_workload.prepare, argv),
}


def environment(**more):
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}


def as_a_job(argv, folder, file):
    """Return the exit status, output and errors of a workload in a process of its own."""
    ran = subprocess.run(
        argv,
        env=environment(GPUDECK_RESULT=str(file)),
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("attention", True),
        ("gemm", False),
        ("linear_attention", False),
        *(
            pytest.param(name, True, marks=pytest.mark.slow)
            for name in ("gemm", "precision", "linear_attention", "distributed", "copy")
        ),
    ],
    ids=lambda value: {True: "alone", False: "here"}.get(value, value),
)
def test_a_job_reports_progress_and_leaves_a_consistent_result(
    name, alone, tmp_path, capsys, monkeypatch
):
    workload = catalog.find(name)
    file = tmp_path / "result.json"
    argv = workload.argv(workload.complete(SMALL[name], "cpu"))
    if alone:
        status, out, err = as_a_job(argv, tmp_path, file)
    else:  # without the seconds that torch takes to load
        monkeypatch.setenv("GPUDECK_RESULT", str(file))
        status, (out, err) = RUN[name](argv[4:]), capsys.readouterr()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    said = [p for p in (protocol.parse(line.encode(), 0.0) for line in lines) if p]
    assert len(lines) == len(said) + 3  # the summary
    assert (
        str(said[0].note) == "loading torch"
        and str(said[-1].note) == "done"
        and said[-1].done == said[-1].total
    )
    notes = list(dict.fromkeys(str(p.note).partition(",")[0] for p in said))
    assert notes == ["loading torch", "preparing", "checking", "warming up", "timing", "done"]
    for attribute in ("done", "flops", "time"):
        values = [getattr(p, attribute) for p in said]
        assert values == sorted(values)

    r = results.read(file.read_bytes())
    assert (r.workload, str(r.verdict), r.device.startswith("CPU: ")) == (name, "pass", True)
    assert r.checks and all(c.passed for c in r.checks)
    t = r.timing
    assert t.count >= 1 and 0 < t.minimum <= t.p50 == t.median <= t.p95 <= t.p99 <= t.maximum
    assert r.started <= r.sustained_from < r.sustained_to <= r.ended + 0.01
    assert r.tflops == pytest.approx(r.flops / (t.median / 1e3) / 1e12)
    sustained = r.flops * t.count / (r.sustained_to - r.sustained_from) / 1e12
    assert r.sustained_tflops == pytest.approx(sustained)
    timing = [p for p in said if str(p.note).startswith("timing")]
    assert any("rank 2" in str(p.note) for p in timing) == (name == "distributed")
    assert timing[-1].flops - timing[0].flops == pytest.approx(r.flops * t.count)
    assert r.params == {p.name: r.params[p.name] for p in workload.params}
    assert not list(tmp_path.glob("*.new"))
    expected = {
        "attention": 4 * 4 * 16 * 96 * 97 / 2, "gemm": 2 * 64**3, "copy": 0,
        "precision": 6 * 40 * 64 * 32, "linear_attention": 6 * 70 * 2 * 8 * 8,
        "distributed": 4 * 4 * 8 * 100 * 101 / 2,
    }[name]  # fmt: skip
    assert r.flops == expected
    assert [cell.operation for cell in r.cells] == ([] if name == "copy" else [name])
    for cell in r.cells:
        assert (cell.flops, cell.tflops, cell.checks) == (r.flops, r.tflops, r.checks)
        assert cell.moved > 0 and bool(cell.sizes) == (name != "attention")
    assert r.bandwidth == pytest.approx(2 * 2**20 / (t.median / 1e3) if name == "copy" else 0)


def test_without_a_result_file_the_last_line_is_the_result(capsys):
    assert main("gemm", gemm.prepare, ["--size=32", "--seconds=0.1", "--dtype=float32"]) == 0
    out, err = capsys.readouterr()
    r = results.read(out.splitlines()[-1].encode())
    assert (str(r.verdict), r.params, err) == (
        "pass",
        {"size": 32, "dtype": "float32", "backend": "auto", "seconds": 0.1},
        "",
    )


def test_terminated_it_ends_at_once():
    argv = [
        sys.executable,
        "-P",
        "-m",
        "gpudeck.accel.workloads.gemm",
        "--size=64",
        "--dtype=float32",
        "--seconds=600",
    ]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE) as job:
        for line in job.stdout:
            if json.loads(line)["note"] == "timing":
                break
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=20) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("name", "argv", "status", "message"),
    [
        ("attention", ["--seq=many"], 2, "seq is a whole number; got 'many'"),
        ("attention", ["--seq=0"], 2, "seq is a whole number from 1 to"),
        ("attention", ["--sequence=5"], 2, "unrecognized arguments: --sequence=5. See --help"),
        ("attention", ["stray"], 2, "unrecognized arguments: stray. See --help"),
        ("attention", ["--causal=maybe"], 2, "causal is one of no, yes, both; got 'maybe'"),
        ("attention", ["--seq=64,,128"], 2, "seq is a whole number; got ''"),
        ("attention", ["--seq=64,128,64"], 2, "seq names 64 twice"),
        (
            "attention",
            ["--seq=" + ",".join(map(str, range(1, 34)))],
            2,
            "seq takes up to 32 values; got 33",
        ),
        (
            "attention",
            [
                "--seq=" + ",".join(map(str, range(1, 31))),
                "--head-dim=" + ",".join(map(str, range(1, 31))),
            ],
            2,
            "these parameters span 900 cells, and one job measures up to 800",
        ),
        (
            "attention",
            ["--dtype=float8"],
            2,
            "dtype is one of bfloat16, float16, float32; got 'float8'",
        ),
        ("attention", ["--seconds=nan"], 2, "seconds is a number from 0.1 to"),
        (
            "attention",
            ["--heads=4", "--kv-heads=3"],
            2,
            "4 heads cannot share 3 key/value heads: these must divide them",
        ),
        (
            "attention",
            ["--batch=4096", "--heads=1024", "--seq=1048576", "--head-dim=64"],
            1,
            "out of memory: at least 4194304.0 GiB are needed, and ",
        ),
        (
            "attention",
            ["--seq=1048576", "--heads=16", "--head-dim=1", "--backend=math"],
            1,
            "Reduce batch or heads or kv_heads or seq or head_dim",
        ),
        ("gemm", ["--size=12.5"], 2, "size is a whole number; got '12.5'"),
        ("copy", ["--mib=-1"], 2, "mib is a whole number from 1 to"),
    ],
)
def test_bad_requests_end_in_one_line(name, argv, status, message, capsys):
    dtype = (
        [] if name == "copy" or any(a.startswith("--dtype") for a in argv) else ["--dtype=float32"]
    )
    assert RUN[name]([*argv, *dtype]) == status
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1
    assert all(json.loads(line)["gpudeck"] == "progress" for line in out.splitlines())


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU it can")
def test_a_backend_that_cannot_do_it_is_a_usage_error(capsys):
    assert RUN["attention"](["--backend=cudnn"]) == 2
    assert "backend cudnn cannot do this: it needs a CUDA GPU" in capsys.readouterr().err


def test_an_allocation_torch_refuses_says_how_much_was_asked(capsys):
    assert main("copy", lambda values, device: torch.empty(2**50, dtype=torch.uint8), []) == 1
    assert (
        capsys.readouterr().err
        == f"out of memory: an allocation of {2**50} bytes failed. Reduce mib\n"
    )


def test_any_other_error_of_torch_is_one_line(capsys):
    assert main("copy", lambda values, device: torch.zeros(2) @ torch.zeros(3), []) == 1
    assert capsys.readouterr().err.startswith("inconsistent tensor size")


def test_a_result_that_cannot_be_written_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GPUDECK_RESULT", str(tmp_path / "missing" / "result.json"))
    assert main("gemm", gemm.prepare, ["--size=32", "--seconds=0.1", "--dtype=float32"]) == 1
    err = capsys.readouterr().err
    assert "No such file or directory" in err and err.count("\n") == 1


def test_a_wrong_answer_fails_and_is_not_timed(capsys):
    called = []
    wrong = Task(
        "mine",
        "named",
        lambda: called.append(1),
        lambda: (Check("relative error", 0.5, 0.1),),
        flops=8.0,
    )
    assert main("gemm", lambda values, device: wrong, ["--seconds=0.1"]) == 1
    out, err = capsys.readouterr()
    r = results.read(out.splitlines()[-1].encode())
    assert str(r.verdict) == "fail: relative error is 0.5, above the bound 0.1"
    assert err == str(r.verdict) + "\n"
    assert (r.timing.count, r.tflops, r.sustained_tflops, called) == (0, 0.0, 0.0, [])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("seq", [48, 4200])  # checked whole, and in samples
def test_the_check_of_attention_catches_what_is_wrong(dtype, seq):
    shape = Shape(1, 1, 1, seq, 8, True, dtype)
    x = fresh(shape, torch.device("cpu"), 1)
    truth = Oracle(x, shape, "forward")
    right, lse = (t.to(t.dtype) for t in reference(x.q, x.k, x.v, causal=True, return_lse=True))
    right, lse = right.to(x.q.dtype), lse.float()

    def passes(out, lse=lse):
        return all(c.passed for c in truth.check({"out": out, "lse": lse}))

    assert passes(right)
    last = right.clone()
    last[0, 0, -1] = right[0, 0, 0]
    unmasked = reference(x.q, x.k, x.v).to(x.q.dtype)
    for wrong in (right * 1.05, unmasked, right.roll(1, 2), right * float("nan"), last):
        assert not passes(wrong)
    assert not passes(right, lse * 1.1)
    assert not passes(right, lse / 0.6931)  # of base 2
    hole = right.clone()
    hole[0, 0, seq // 3] = float("inf")  # perhaps in no sample; found all the same
    (said,) = truth.check({"out": hole, "lse": lse})
    assert str(said.name) == "share of elements that are not finite" and not said.passed


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_the_check_of_gradients_catches_what_is_wrong(kv_heads, causal):
    shape = Shape(2, 2, kv_heads, 40, 8, causal, "bfloat16")
    x = fresh(shape, torch.device("cpu"), 1)
    truth = Oracle(x, shape, "backward")
    leaves = [t.double().requires_grad_() for t in x[:3]]
    right = [
        g.bfloat16()
        for g in torch.autograd.grad(reference(*leaves, causal=causal), leaves, x.dout.double())
    ]

    def passes(dq, dk, dv):
        return all(c.passed for c in truth.check({"dq": dq, "dk": dk, "dv": dv}))

    assert passes(*right)
    for i in range(3):
        for wrong in (
            right[i] * 1.1,
            right[i].roll(1, 2),
            torch.zeros_like(right[i]),
            right[i] * float("nan"),
        ):
            assert not passes(*right[:i], wrong, *right[i + 1 :])


def test_the_largest_error_may_include_one_rounding_of_the_exact_answer():
    shape = Shape(1, 2, 2, 40, 8, True, "bfloat16")
    x = fresh(shape, torch.device("cpu"), 1)

    def gradients(dtype):
        leaves = [t.to(dtype).requires_grad_() for t in x[:3]]
        out = reference(*leaves, causal=True, dtype=dtype)
        return [g.double() for g in torch.autograd.grad(out, leaves, x.dout.to(dtype))]

    exact, plain = gradients(torch.float64)[1], gradients(torch.bfloat16)[1]
    answer = exact.bfloat16()
    by_element, by_all = (
        next(c for c in Oracle(x, shape, "backward").check({"dk": answer}) if name in str(c.name))
        for name in ("largest", "relative")
    )
    errors = 2 * (plain - exact).abs().max() + (answer.double() - exact).abs().max()
    assert by_element.bound == pytest.approx(float(errors / exact.abs().max()), rel=0.01)
    assert by_all.bound == pytest.approx(float(2 * (plain - exact).norm() / exact.norm()), rel=0.01)


@pytest.mark.parametrize("way", ["forward", "both"])
def test_one_token_has_no_gradient_to_divide_by(way, capsys):
    assert (
        RUN["attention"](["--seq=1", "--seconds=0.1", f"--direction={way}", "--dtype=float32"]) == 0
    )


def operands(a, b):
    return arrange(a, b, None, None, None, None, None)


def test_the_check_of_the_product_catches_less_precision_than_asked_for():
    a, b = torch.randn(128, 128), torch.randn(128, 128)
    assert all(c.passed for c in gemm.compare(a @ b, operands(a, b)))
    tf32 = [
        (x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)
    ]  # TF32 keeps 10 bits of 23
    assert not gemm.compare(tf32[0] @ tf32[1], operands(a, b))[0].passed


@pytest.mark.parametrize("recipe", ["tensor", "row", "block"])
def test_a_product_in_fp8_is_checked_against_what_was_rounded(recipe, capsys):
    argv = ["--size=300", "--seconds=0.1", f"--dtype=fp8-{recipe}"]
    assert RUN["gemm"](argv) == 0
    said = capsys.readouterr().out
    assert "FP8 is EMULATED in float32 on this device" in said
    x = gemm.posed(1200, f"fp8-{recipe}", find_device())
    right = multiplied(x, "torch")
    assert gemm.compare(right, x)[0].passed
    assert not gemm.compare(right * 1.02, x)[0].passed
    wrong = right.clone()
    wrong[:, 1024:] *= 1.1  # the columns of the second part have scales of their own
    assert not gemm.compare(wrong, x)[0].passed


def test_an_answer_that_is_not_finite_is_a_failed_check_that_a_result_can_hold():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    checks = gemm.compare((a @ b).fill_(float("nan")), operands(a, b))
    assert [c.passed for c in checks] == [False]
    assert msgspec.json.decode(msgspec.json.encode(checks), type=tuple[Check, ...]) == checks
    with pytest.raises(ValueError, match="nan"):
        Check("relative error", float("nan"), 0.1)


def test_the_check_of_the_copy_catches_one_bit():
    source = torch.arange(1000)
    copied = source.clone()
    assert copy_workload.compare(copied, source)[0].passed
    copied[777] ^= 1 << 40
    assert not copy_workload.compare(copied, source)[0].passed


@given(data=st.data(), workload=st.sampled_from(catalog.WORKLOADS))
def test_the_command_line_of_the_catalog_is_understood(data, workload):
    def value(p):
        if p.kind == "choice":
            return st.sampled_from(p.choices)
        if p.kind == "flag":
            return st.sampled_from(["yes", "no"])
        if p.kind == "choices":
            return st.lists(st.sampled_from(p.choices), min_size=1, unique=True).map(",".join)
        if p.kind == "ints":
            several = st.lists(
                st.integers(int(p.minimum), int(p.maximum)),
                min_size=1,
                max_size=catalog.MOST_LISTED,
                unique=True,
            )
            return several.map(lambda found: ",".join(map(str, found)))
        return (
            st.integers(int(p.minimum), int(p.maximum))
            if p.kind == "int"
            else st.floats(p.minimum, p.maximum)
        ).map(str)

    values = {p.name: data.draw(value(p)) for p in workload.params}
    argv = workload.argv(workload.complete(values, "nvidia"))
    assert argv[1:4] == ["-P", "-m", workload.module]
    assert parse(workload, argv[4:]) == values
    typed = workload.typed(argv)
    assert typed is not None
    told = dict(word.split("=", 1) for word in typed)
    for kind in ("nvidia", "cpu"):
        meant = workload.complete(told, kind)
        assert all(meant[p.name] == values[p.name] for p in workload.used(values))
