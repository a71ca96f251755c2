"""The kernels for compute capability 7.5 as machine code, read without a GPU.

NVRTC compiles them where it is installed, as CUDA's builds of torch and the extra `nvrtc` do.
"""

import ctypes

import pytest
import torch

from gpudeck.accel.attention import choose
from gpudeck.accel.attention.kernels.turing import builds
from gpudeck.accel.attention.kernels.turing.arguments import Arguments, LaidOut, declare
from gpudeck.accel.attention.kernels.turing.builds import Kind
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.runtime import nvrtc
from gpudeck.accel.search.resources import read_usage
from tests.unit.accel.sass import main_loop

try:
    nvrtc.library()
except ImportError:
    nvrtc_is_there = False
else:
    nvrtc_is_there = True

needs_nvrtc = pytest.mark.skipif(not nvrtc_is_there, reason="needs NVRTC; make matrix installs it")
SHARED, REGISTERS = 64 * 1024, 64 * 1024
"""Of a multiprocessor of compute capability 7.5."""
MAIN = {"plain": {}, "causal": {"right": True}, "window": {"left": True, "right": True}}
OTHERS = {
    "ragged": {"ragged": True, "right": True},
    "softcap": {"softcap": True, "right": True},
    "mask": {"bias": "bool"},
    "bias": {"bias": "float", "bias_grad": True, "right": True},
    "ALiBi": {"alibi": True, "right": True},
}
SIZES = (8, 16, 32, 64, 80, 96, 112, 128)


@needs_nvrtc
@pytest.mark.matrix
@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("dim", [32, 64, 80, 128])
def test_all_products_are_tensor_instructions_and_nothing_is_spilled(name, dim):
    """A tensor instruction multiplies 16 x 8 x 8; a turn of each kernel is counted exactly."""
    kind = Kind(dim, **MAIN[name])
    steps = kind.width // 8
    turns = {  # products of a turn, its rows of keys or queries in eights
        builds.forward_build: (2, 64), builds.queries_build: (3, 32),
        builds.keys_build: (4, 32 if dim <= 64 else 16),
    }  # fmt: skip
    for make, (products, rows) in turns.items():
        build = make(kind)
        code = build.compile("sm_75")
        found = read_usage(code)
        assert not found.stack, (build.kernel, found)
        blocks = dict(build.macros)["BLOCKS"]
        assert blocks * build.shared <= SHARED
        assert blocks * build.threads * found.registers <= REGISTERS
        assert blocks * build.threads // 32 >= 8  # two warps for each scheduler
        loop = main_loop(code)
        assert loop["HMMA.1688.F32"] == products * steps * rows // 8
        assert sum(n for op, n in loop.items() if op.startswith("HMMA")) == loop["HMMA.1688.F32"]
        assert not any(op.startswith(("LDL", "STL", "LDS.", "LD.")) for op in loop)


@needs_nvrtc
@pytest.mark.matrix
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dim", [64, 128])
def test_variants_keep_their_loops_in_registers(name, dim):
    """dk and dv of 128 elements fill the registers; there, a few fixed values may be spilled."""
    kind = Kind(dim, **OTHERS[name])
    for make in (builds.forward_build, builds.queries_build, builds.keys_build):
        build = make(kind)
        found = read_usage(build.compile("sm_75"))
        assert found.stack <= (48 if make is builds.keys_build and dim > 64 else 0), build.kernel
        assert dict(build.macros)["BLOCKS"] * build.threads * found.registers <= REGISTERS


@needs_nvrtc
@pytest.mark.matrix
@pytest.mark.parametrize("dim", [160, 192, 256])
def test_wide_heads_have_a_forward_pass_without_spills(dim):
    build = builds.forward_build(Kind(dim, right=True))
    assert not read_usage(build.compile("sm_75")).stack and build.shared <= SHARED


@needs_nvrtc
def test_code_is_compiled_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    source = 'extern "C" __global__ void f(int* x) { *x = N; }'
    code = nvrtc.compile_cuda(source, "compute_75", {"N": 3})
    (file,) = (tmp_path / "cuda").iterdir()
    assert b".target sm_75" in code and file.read_bytes() == code
    monkeypatch.setattr(nvrtc, "_compile", None)  # it is not called again
    assert nvrtc.compile_cuda(source, "compute_75", {"N": 3}) == code
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"NVRTC cannot compile the kernel: .*undefined"):
        nvrtc.compile_cuda(source, "compute_75", {})


@needs_nvrtc
def test_where_code_cannot_be_kept_it_is_compiled_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "cuda").write_text("a file where the folder should be")
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="compiled kernels are not kept"):
        assert nvrtc.compile_cuda('extern "C" __global__ void f() {}', "sm_75", {})


def _place(kind: Kind, row: int, chunk: int) -> int:
    """Return the byte at which 16 bytes of a tile begin, as `place` in tiles.cu."""
    return 2 * row * kind.pitch + 16 * (chunk if kind.width % 64 else chunk ^ (row & 7))


@pytest.mark.parametrize("dim", [*SIZES, 160, 192, 256])
def test_no_two_rows_of_a_matrix_lie_in_one_bank(dim):
    """ldmatrix reads 8 rows of 16 bytes at a time; they must fill all 32 banks of 4 bytes."""
    kind = Kind(dim)
    chunks = kind.width // 8
    tile = {_place(kind, row, chunk) for row in range(64) for chunk in range(chunks)}
    assert len(tile) == 64 * chunks and max(tile) < 2 * 64 * kind.pitch
    for first in range(0, 64, 8):
        for chunk in range(chunks):
            banks = {_place(kind, first + row, chunk) % 128 // 16 for row in range(8)}
            assert len(banks) == 8
    if kind.width % 64 == 0:  # threads store neighbouring pieces of a row
        for piece in range(0, 64 * chunks, 8):
            stored = {_place(kind, (piece + i) // chunks, (piece + i) % chunks) for i in range(8)}
            assert len({at % 128 // 16 for at in stored}) == 8


@pytest.mark.parametrize("dim", [*SIZES, 160, 192, 256])
def test_the_tiles_of_the_forward_pass_have_room_in_shared_memory(dim):
    """Keys, values and, where they do not stay in registers, 64 queries; all fit on the device."""
    build = builds.forward_build(Kind(dim))
    has = dict(build.macros)
    read = 2 * has["KEYS"] + (0 if has["QUERIES_KEPT"] else build.rows)
    assert build.tile_rows >= max(read, build.rows)
    assert has["BLOCKS"] * build.shared <= SHARED


def test_the_host_and_the_kernels_lay_arguments_out_alike():
    """All fields have their natural alignment and none lies in a gap, in C as in ctypes."""
    assert ctypes.sizeof(LaidOut) == 32 and ctypes.sizeof(Arguments) % 8 == 0
    fields = [name for name, *_ in Arguments._fields_]
    at = [getattr(Arguments, name).offset for name in fields]
    assert at == sorted(at) and at[fields.index("batch")] == at[fields.index("slopes_batch")] + 8
    assert (
        declare().index("Tensor q;") < declare().index("float* lse;") < declare().index("int left")
    )


def problem(**given):
    """A problem on an RTX 2080 Ti."""
    plain = {
        "batch": 2, "heads": 8, "kv_heads": 8, "seq_q": 512, "seq_k": 512, "head_dim": 64,
        "dtype": torch.float16, "device": torch.device("cuda", 0), "capability": (7, 5),
        "scale": 0.125,
    }  # fmt: skip
    return Problem(**plain | given)


@needs_nvrtc
def test_auto_begins_with_them_on_their_gpus_and_says_why_not_elsewhere():
    for direction in ("forward", "backward"):
        assert choose(problem(), direction=direction).backend == "turing"
        windowed = problem(left=100, right=0, kv_heads=2, softcap=5.0, ragged=True)
        assert choose(windowed, direction=direction).backend == "turing"
    assert choose(problem(head_dim=256)).backend == "turing"
    with pytest.raises(ValueError, match="takes head sizes up to 128, not 256"):
        choose(problem(head_dim=256), "turing", "backward")
    with pytest.raises(ValueError, match=r"takes float16, not bfloat16, .* \.half\(\)"):
        choose(problem(dtype=torch.bfloat16), "turing")
    with pytest.raises(ValueError, match=r"for compute capability 7\.5; this GPU has 8\.9"):
        choose(problem(capability=(8, 9)), "turing")
