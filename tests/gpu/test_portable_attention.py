"""The portable Triton kernels, the launcher and the graph replay on a GPU. Run on a machine with
a GPU:

python -m pytest tests/gpu/test_portable_attention.py -n 8
"""

import threading

import pytest
import torch

from gpudeck.accel.attention.kernels.portable import backward, forward
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.runtime.graphs import Replay

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

CUDA = torch.device("cuda", 0)
NAMES = ("out", "lse", "dq", "dk", "dv", "dbias")


def case(q, kv=None, dtype=torch.bfloat16, bias=None, mask=False, layout="bhsd", **rules):
    return {
        "q": q,
        "kv": kv or q,
        "dtype": dtype,
        "bias": bias,
        "mask": mask,
        "layout": layout,
    } | rules


CASES = {
    "64, causal": case((2, 4, 512, 64), right=0, dtype=torch.float16),
    "64, odd lengths": case((2, 4, 333, 64), (2, 2, 517, 64), right=0),
    "64, more queries": case((1, 4, 517, 64), (1, 4, 333, 64), right=0, layout="bshd"),
    "64, window, grouped": case((1, 4, 700, 64), (1, 1, 700, 64), left=100, right=20),
    "128, causal": case((1, 4, 640, 128), right=0),
    "128, grouped, from the left": case(
        (2, 4, 384, 128), (2, 2, 400, 128), left=130, dtype=torch.float16, layout="bshd"
    ),
    "128, softcap": case((1, 2, 300, 128), softcap=20.0, right=0),
    "256, causal": case((1, 2, 400, 256), right=0),
    "256": case((1, 2, 256, 256), dtype=torch.float16),
    "96": case((1, 2, 200, 96), right=0),
    "80": case((1, 2, 200, 80), layout="bshd"),
    "20": case((1, 2, 65, 20), right=0),
    "32": case((1, 8, 128, 32), (1, 2, 128, 32)),
    "float32": case((1, 2, 150, 64), dtype=torch.float32, right=0),
    "decode": case((2, 8, 1, 128), (2, 2, 5000, 128), right=0),
    "decode, window": case((1, 6, 5, 64), (1, 2, 3000, 64), left=700, right=0),
    "mask": case((2, 2, 130, 64), bias=(2, 1, 130, 130), mask=True),
    "bias of every pair": case((2, 2, 200, 64), bias=(2, 2, 200, 200)),
    "bias of heads": case((2, 4, 130, 128), (2, 2, 130, 128), bias=(1, 4, 130, 130), right=0),
    "bias of keys": case((2, 2, 130, 64), bias=(2, 1, 1, 130), dtype=torch.float16),
    "one bias": case((2, 2, 130, 64), bias=(1, 1, 1, 1)),
}


def data(case):
    torch.manual_seed(0)

    def normal(shape):
        if case["layout"] == "bshd":
            b, h, s, d = shape
            return torch.randn(b, s, h, d, device=CUDA, dtype=case["dtype"]).transpose(1, 2)
        return torch.randn(shape, device=CUDA, dtype=case["dtype"])

    q, k, v, dout = normal(case["q"]), normal(case["kv"]), normal(case["kv"]), normal(case["q"])
    bias = (
        None
        if case["bias"] is None
        else torch.randn(case["bias"], device=CUDA, dtype=case["dtype"])
    )
    return q, k, v, dout, bias > 0 if case["mask"] else bias


def rules_of(case):
    return {name: case.get(name) for name in ("left", "right")} | {
        "scale": case["q"][3] ** -0.5,
        "softcap": case.get("softcap", 0.0),
    }


def ours(q, k, v, dout, bias=None, ragged=None, **rules):
    expanded = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
    given = {"bias": expanded, "ragged": ragged}
    out, lse = forward(q, k, v, Rules(**rules), **given)
    return out, lse, *backward(dout, q, k, v, out, lse, Rules(**rules), **given)


def exact(q, k, v, dout, bias=None, ragged=None, dtype=torch.float64, **rules):
    leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
    additive = bias is not None and bias.dtype.is_floating_point
    given = bias.detach().to(dtype).requires_grad_() if additive else bias
    window = (rules["left"], rules["right"])
    out, lse = reference(
        *leaves,
        window=window,
        scale=rules["scale"],
        softcap=rules["softcap"],
        bias=given,
        ragged=ragged,
        dtype=dtype,
        return_lse=True,
    )
    out.backward(dout.to(dtype))
    return out.detach(), lse.detach(), *(x.grad for x in leaves), given.grad if additive else None


def assert_twice_as_good(got, truth, plain):
    for name, x, right, rough in zip(NAMES, got, truth, plain, strict=True):
        if right is None:
            continue
        assert torch.equal(x.isinf(), right.isinf()) and not x.isnan().any(), name
        seen = ~right.isinf()
        error, allowed = (
            (x.double() - right)[seen].abs().max(),
            2 * (rough.double() - right)[seen].abs().max() + 1e-5,
        )
        assert error <= allowed, f"{name}: {error:.3g} > {allowed:.3g}"


@pytest.mark.parametrize("name", list(CASES))
def test_the_answer_and_the_gradients_are_as_good_as_the_plain_computation(name):
    q, k, v, dout, bias = data(CASES[name])
    rules = rules_of(CASES[name])
    got = ours(q, k, v, dout, bias, **rules)
    assert_twice_as_good(
        got, exact(q, k, v, dout, bias, **rules), exact(q, k, v, dout, bias, dtype=q.dtype, **rules)
    )
    again = ours(q, k, v, dout, bias, **rules)
    for what, a, b in zip(NAMES, got, again, strict=True):
        assert a is None or torch.equal(a, b), f"{what} is another the second time"


@pytest.mark.parametrize(("dim", "right"), [(64, 0), (128, None)])
def test_sequences_end_to_end(dim, right):
    torch.manual_seed(0)
    lengths_q, lengths_k = [5, 0, 130, 77, 256], [5, 9, 200, 0, 256]
    starts = [
        torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32, device=CUDA)
        for n in (lengths_q, lengths_k)
    ]
    q, dout = (
        torch.randn(1, 4, sum(lengths_q), dim, device=CUDA, dtype=torch.bfloat16) for _ in range(2)
    )
    k, v = (
        torch.randn(1, 2, sum(lengths_k), dim, device=CUDA, dtype=torch.bfloat16) for _ in range(2)
    )
    ragged, rules = (
        Ragged(*starts, 256, 256),
        {"left": None, "right": right, "scale": dim**-0.5, "softcap": 0.0},
    )
    got = ours(q, k, v, dout, ragged=ragged, **rules)
    truth, plain = (
        exact(q, k, v, dout, ragged=ragged, dtype=d, **rules)
        for d in (torch.float64, torch.bfloat16)
    )
    assert_twice_as_good(got, truth, plain)


PLAIN = Rules(scale=0.125)


def small(batch=2, heads=4, seq=100, dim=64):
    torch.manual_seed(0)
    return tuple(
        torch.randn(batch, heads, seq, dim, device=CUDA, dtype=torch.float16) for _ in range(3)
    )


def test_a_stream_of_its_own_and_a_thread_that_has_not_used_the_gpu():
    q, k, v = small()
    expected = forward(q, k, v, PLAIN)[0]
    torch.cuda.synchronize()
    stream, found = torch.cuda.Stream(), []
    with torch.cuda.stream(stream):
        found.append(forward(q, k, v, PLAIN)[0])
    thread = threading.Thread(target=lambda: found.append(forward(q, k, v, PLAIN)[0]))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert all(torch.equal(out, expected) for out in found) and len(found) == 2


def test_many_threads_share_a_launch():
    inputs = [
        tuple(torch.randn(2, 4, 100, 64, device=CUDA, dtype=torch.float16) for _ in range(3))
        for _ in range(8)
    ]
    expected = [forward(*x, PLAIN)[0] for x in inputs]
    torch.cuda.synchronize()
    wrong = []

    def work(i):
        wrong.extend(
            i for _ in range(200) if not torch.equal(forward(*inputs[i], PLAIN)[0], expected[i])
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_misaligned_input_is_read_as_it_lies():
    flat = torch.randn(2 * 4 * 100 * 64 + 1, device=CUDA, dtype=torch.float16)
    q, k, v = small()
    odd = flat[1:].view(q.shape).copy_(q)
    torch.testing.assert_close(forward(odd, k, v, PLAIN)[0], forward(q, k, v, PLAIN)[0])


def test_more_heads_than_a_grid_has_rows():
    q, k, v = (torch.randn(70000, 1, 16, 16, device=CUDA, dtype=torch.float16) for _ in range(3))
    out = forward(q, k, v, PLAIN)[0]
    scores = torch.softmax(q[-1, 0].double() @ k[-1, 0].double().T * 0.125, -1)
    torch.testing.assert_close(
        out[-1, 0].double(), scores @ v[-1, 0].double(), atol=2e-3, rtol=1e-2
    )


def test_offsets_beyond_32_bits():
    """1,100 keys, two million elements apart."""
    apart, keys = 1 << 21, 1100
    ground = torch.zeros(apart * keys, device=CUDA, dtype=torch.float16)
    k = ground.as_strided((1, 1, keys, 64), (0, 0, apart, 1))
    v = ground.as_strided((1, 1, keys, 64), (0, 0, apart, 1), 1024)
    k.normal_(), v.normal_()
    q = torch.randn(1, 1, 130, 64, device=CUDA, dtype=torch.float16)
    near = [x.contiguous() for x in (k, v)]
    out, lse = forward(q, k, v, PLAIN)
    expected = forward(q, *near, PLAIN)
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])


def test_memory_grows_with_the_length_and_not_with_its_square():
    q, k, v = (torch.randn(1, 4, 16384, 64, device=CUDA, dtype=torch.bfloat16) for _ in range(3))
    rules = Rules(left=None, right=0, scale=0.125)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out, lse = forward(q, k, v, rules)
    backward(q, q, k, v, out, lse, rules)
    torch.cuda.synchronize()
    # Four results like q, and two numbers a row; the scores of one head alone would be 512 MiB.
    assert torch.cuda.max_memory_allocated() - before <= 4 * q.nbytes + 2 * lse.nbytes + 2**20


def test_a_replayed_graph_gives_the_same_bits():
    first, second = small(), tuple(x.flip(2) for x in small())
    replay = Replay(lambda q, k, v: forward(q, k, v, PLAIN), *first)
    for inputs in (second, first):
        out, lse = replay(*inputs)
        expected = forward(*inputs, PLAIN)
        assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
    replay.inputs[0].copy_(second[0])
    assert torch.equal(replay(replay.inputs[0], *second[1:])[0], forward(*second, PLAIN)[0])


def test_a_graph_says_what_does_not_fit():
    replay = Replay(torch.sin, torch.zeros(4, device=CUDA))
    with pytest.raises(
        ValueError,
        match=r"input 0 was captured as float32 \[4\] on cuda:0; got float32 \[5\] on cuda:0",
    ):
        replay(torch.zeros(5, device=CUDA))
    with pytest.raises(ValueError, match="captured with 1 inputs; got 2"):
        replay(torch.zeros(4, device=CUDA), torch.zeros(4, device=CUDA))
