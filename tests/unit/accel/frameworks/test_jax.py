"""Attention in JAX programs is what they would compute, with gradients, under jit and vmap."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="jax is not installed; make frameworks installs it")

import jax
import jax.numpy as jnp
import numpy as np

from gpudeck import accel

B, H, S, D = 2, 4, 16, 8


def qkv(heads=H, dtype=jnp.float32, keys=S, shape=(B,)):
    keys_of = jax.random.split(jax.random.key(0), 3)
    sizes = ((*shape, H, S, D), (*shape, heads, keys, D), (*shape, heads, keys, D))
    return [jax.random.normal(k, s, dtype) for k, s in zip(keys_of, sizes, strict=True)]


def plain(q, k, v, bias=None, seen=None, scale=D**-0.5, cap=0.0):
    """Compute attention as JAX programs write it, in float32."""
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
    s = jnp.einsum("...id,...jd->...ij", q, k) * scale
    s = jnp.tanh(s / cap) * cap if cap else s
    if bias is not None:
        s = jnp.where(bias, s, -jnp.inf) if bias.dtype == bool else s + bias
    s = s if seen is None else jnp.where(seen, s, -jnp.inf)
    return jnp.einsum("...ij,...jd->...id", jax.nn.softmax(s, -1), v)


def loss(attend):
    return lambda *given: (attend(*given) ** 2).sum()


def near(ours, theirs, **limits):
    limits = {"rtol": 2e-4, "atol": 1e-5} | limits
    np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs), **limits)


CAUSAL = np.tril(np.ones((S, S), bool))
WINDOW = np.abs(np.arange(S)[:, None] - np.arange(S)) <= 3
CASES = {
    "full": ({}, {}),
    "causal": ({"causal": True}, {"seen": CAUSAL}),
    "window": ({"window": (3, 3)}, {"seen": WINDOW}),
    "scale and cap": ({"scale": 0.5, "softcap": 2.0}, {"scale": 0.5, "cap": 2.0}),
    "mask": ({"bias": jnp.asarray(CAUSAL)}, {"seen": CAUSAL}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("heads", [H, 2])
def test_output_and_gradients_are_those_of_a_jax_program(case, heads):
    ours, theirs = CASES[case]
    given = qkv(heads)

    def attend(*x):
        return accel.jax.attention(*x, **ours)

    near(jax.jit(attend)(*given), plain(*given, **theirs))
    grads = jax.jit(jax.grad(loss(attend), (0, 1, 2)))(*given)
    expected = jax.grad(loss(lambda *x: plain(*x, **theirs)), (0, 1, 2))(*given)
    for mine, other in zip(grads, expected, strict=True):
        near(mine, other)


@pytest.mark.parametrize("shape", [(H, S, S), (1, 1, 1, S), (B, 1, S, S)])
def test_a_bias_has_its_gradient(shape):
    given = [*qkv(), jax.random.normal(jax.random.key(1), shape)]
    ours = jax.grad(loss(lambda *x: accel.jax.attention(*x[:3], bias=x[3])), (0, 3))(*given)
    theirs = jax.grad(loss(plain), (0, 3))(*given)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        near(mine, other)


def test_vmap_maps_any_of_the_arguments():
    q, k, v = qkv(shape=(3, B))
    near(jax.vmap(accel.jax.attention)(q, k, v), plain(q, k, v))
    ours = jax.vmap(accel.jax.attention, in_axes=(0, None, None))(q, k[0], v[0])
    near(ours, plain(q, jnp.broadcast_to(k[0], k.shape), jnp.broadcast_to(v[0], v.shape)))
    bias = jax.random.normal(jax.random.key(2), (3, H, S, S))

    def summed(attend):
        mapped = jax.vmap(lambda x, b: attend(x, k[0], v[0], bias=b))
        return jax.grad(lambda b: (mapped(q, b) ** 2).sum())(bias)

    near(summed(accel.jax.attention), summed(plain))


def test_both_layouts_and_half_precision():
    q, k, v = qkv(dtype=jnp.bfloat16)
    out = accel.jax.attention(q, k, v)
    assert out.dtype == jnp.bfloat16
    near(out, plain(q, k, v), rtol=2e-2, atol=2e-2)
    rows = [x.swapaxes(1, 2) for x in (q, k, v)]
    assert jnp.array_equal(accel.jax.attention(*rows, layout="bshd").swapaxes(1, 2), out)


def test_empty_arrays_give_empty_ones():
    q, k, v = qkv()
    assert accel.jax.attention(q[:0], k[:0], v[:0]).shape == (0, H, S, D)
    assert accel.jax.attention(q[:, :, :0], k, v).shape == (B, H, 0, D)
    grad = jax.grad(lambda x: accel.jax.attention(q, x, x).sum())(k[:, :, :0])
    assert grad.shape == (B, H, 0, D)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: ((q, k.astype(jnp.bfloat16), v), {}), "one dtype"),
        (lambda q, k, v: ((q, k[:, :3], v[:, :3]), {}), "heads of k must divide"),
        (lambda q, k, v: ((q[0], k, v), {}), "must be .batch, heads, sequence"),
        (lambda q, k, v: ((q, k, v), {"bias": jnp.ones((3, 3))}), "broadcastable"),
        (lambda q, k, v: ((q, k, v), {"backend": "fastest"}), "backend is auto or one of"),
        (lambda q, k, v: ((q, k, v), {"layout": "sbhd"}), "layout is one of"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(change, message):
    given, options = change(*qkv())
    with pytest.raises(ValueError, match=message):
        accel.jax.attention(*given, **options)


def test_an_error_of_the_backend_is_raised_by_jax_with_its_words():
    with pytest.raises(jax.errors.JaxRuntimeError, match="backend hopper cannot do this"):
        accel.jax.attention(*qkv(), backend="hopper").block_until_ready()
