"""Arrays of other libraries are read in place and come back as arrays of their library."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

import gpudeck.accel.arrays  # noqa: F401 # which is no part of accel until it is imported
from gpudeck import accel


def qkv(dtype=np.float32):
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal((2, 3, 9, 16)).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_numpy_arrays_give_a_numpy_array(dtype):
    q, k, v = qkv(dtype)
    out = accel.arrays.attention(q, k, v, causal=True)
    assert type(out) is np.ndarray and out.dtype == dtype
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    limit = 1e-5 if dtype == np.float32 else 4e-3
    np.testing.assert_allclose(out, expected.numpy(), rtol=limit, atol=limit)


def test_a_mask_and_strided_views_are_taken_as_they_are():
    q, k, v = (x.transpose(0, 2, 1, 3) for x in qkv())
    seen = np.tril(np.ones((9, 9), bool))
    out = accel.arrays.attention(q, k, v, bias=seen, layout="bshd")
    expected = accel.arrays.attention(q, k, v, causal=True, layout="bshd")
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_arrays_of_jax_are_taken_too():
    jnp = pytest.importorskip(
        "jax.numpy", reason="jax is not installed; make frameworks installs it"
    )
    q, k, v = map(jnp.asarray, qkv())
    out = accel.arrays.attention(q, k, v)
    np.testing.assert_allclose(out, accel.arrays.attention(*qkv()), rtol=1e-6, atol=1e-6)
    assert isinstance(out, type(q))


def test_a_library_that_its_arrays_do_not_name_is_found_by_their_class(monkeypatch):
    made = types.ModuleType("cupy_like")

    class Array:  # as CuPy's up to version 15: DLPack without the method __array_namespace__
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    Array.__module__ = "cupy_like.core"
    q, k, v = map(Array, qkv())
    with pytest.raises(TypeError, match="does not name its library"):
        accel.arrays.attention(q, k, v)
    made.from_dlpack = lambda x: Array(np.from_dlpack(x))
    monkeypatch.setitem(sys.modules, "cupy_like", made)
    out = accel.arrays.attention(q, k, v)
    assert type(out) is Array
    np.testing.assert_array_equal(out.array, accel.arrays.attention(*qkv()))


def test_lists_are_refused_by_name():
    q, k, _ = qkv()
    with pytest.raises(TypeError, match="v must offer DLPack"):
        accel.arrays.attention(q, k, [1.0])
