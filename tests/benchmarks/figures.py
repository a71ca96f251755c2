"""Write the tables of figures in README.md and the manual from the measured rows.

`python -m tests.benchmarks.figures` writes them between the marks `<!-- figures NAME -->` and
`<!-- end of figures -->`, which a test compares. A figure is the geometric mean over shapes of how
many times as fast ours is, with the median, the worst and the best shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from tests.benchmarks import comparisons as by
from tests.benchmarks.comparisons import OURS
from tests.benchmarks.program_figures import TABLES, program_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "docs/manual/assistant.md",
    "docs/manual/attention.md",
    "docs/manual/precision.md",
)
WHOLE = " in full"
"""Behind a group's name: also the figures that the README leaves out, and what is not measured."""
_MARKED = re.compile(r"(<!-- figures (?P<names>[^>]+) -->\n).*?(<!-- end of figures -->)", re.S)
_HEAD = """\
| what | beside the fastest of | shapes | forward, or both | backward | measured |
|---|---|---|---|---|---|"""
Ratios = Callable[[], list[float]]


@dataclass(frozen=True)
class Figure:
    """Describe a comparison: what of ours, beside what, and where its rows are."""

    what: str
    peers: str
    file: str
    forward: Ratios
    """How many times as fast ours is at each shape: forward, or in both passes together."""
    backward: Ratios | None = None
    short: bool = False
    """Whether it also stands in the README, once it is measured."""
    counts: Callable[[by.Row], bool] = lambda row: True
    """Which of the file's rows it is computed from, where others are of another day."""

    def line(self, *, whole: bool) -> str:
        """Return its row of a table, with the name of the file where the table is `whole`."""
        both = [[] if ratios is None else ratios() for ratios in (self.forward, self.backward)]
        counts = [len(ratios) for ratios in both if ratios]
        differ = "{} forward, {} backward" if len(set(counts)) > 1 else "{}"
        shapes = differ.format(*counts or [0])
        means = [_words(ratios) for ratios in both]
        means[0] = means[0] or "not measured"
        measured = by.describe_rows(self.file, self.counts)
        where = f", {self.file}.csv" if whole else ""
        return f"| {' | '.join((self.what, self.peers, shapes, *means, measured + where))} |"


def _words(ratios: list[float]) -> str:
    if not ratios:
        return ""
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{geometric_mean(ratios):.2f} ({median(ratios):.2f}; {spread})"


def _ways(
    what: str, peers: str, file: str, compare: Any, *args: Any, short: bool = False
) -> Figure:
    """Return the figure of both passes, which are told by the first argument of `compare`."""
    ways = (partial(compare, way, *args) for way in ("forward", "backward"))
    return Figure(what, peers, file, *ways, short, lambda row: row.get("tuning") != by.TUNED)


def _column(what: str, peers: str, file: str, column: str, *shape: str, **wanted: str) -> Figure:
    """Return the figure of a column that holds how many times as fast ours is."""
    return Figure(what, peers, file, partial(by.ratios, file, column, shape, **wanted))


def _large_product(what: str, peer: str, precision: str, *, short: bool = False) -> Figure:
    return Figure(
        f"{what} from 1,024 rows on, our kernel", peer, "gemm", partial(by.many_rows, precision),
        short=short, counts=lambda row: by.is_large(row, precision),
    )  # fmt: skip


def _small_product(peer: str, precision: str) -> Figure:
    return Figure(
        "… up to 64 rows, our kernels", peer, "gemm", partial(by.few_rows, precision),
        counts=lambda row: row["precision"] == precision and int(row["m"]) <= 64,
    )  # fmt: skip


def _tuned(triton: str, kind: str, *, short: bool = False) -> list[Figure]:
    """Return the figures of a kind, or of all of them if it is empty, beside a fully tuned fla-core
    with one Triton. Gradients are called one by one.
    """
    measured = [words for name, words in _KINDS.items() if by.linear_tuned("graph", name, triton)]
    every = "all six kinds" if len(measured) == len(_KINDS) else ", ".join(measured)
    words, found = _KINDS.get(kind, every), []
    for way, how in (("graph", "as CUDA graphs"), ("forward", "called one by one")):
        forward = partial(by.linear_tuned, way, kind, triton)
        backward = partial(by.linear_tuned, "backward", kind, triton)
        if forward():
            found.append(
                Figure(f"linear attention: {words}; forward {how}",
                       f"fla-core, Triton {triton.removesuffix('.0')}", "linear_attention",
                       forward, backward if way == "forward" else None, short and way == "graph",
                       lambda row: by.is_tuned(row, triton) and kind in ("", row["kind"]))
            )  # fmt: skip
    return found


def _beside(kind: str, peer: str, words: str) -> list[Figure]:
    """Return the figures of a kind of linear attention beside a peer other than fla-core."""
    return [
        Figure(f"linear attention: {_KINDS[kind]}; forward {how}", words, "linear_attention",
               partial(by.linear, way, kind, peer), backward,
               counts=lambda row: row["peer"] == peer)
        for way, how, backward in (
            ("graph", "as CUDA graphs", None),
            ("forward", "called one by one", partial(by.linear, "backward", kind, peer)),
        )
    ]  # fmt: skip


def _is_scaled_by_row(row: by.Row) -> bool:
    return by.has_sizes(row, 4096) and row["layer"].split()[0] in ("row", "torchao")


_PEERS = "PyTorch, cuDNN, FA3"
_BOTH_WAYS = "PyTorch, cuDNN, FA3 (forward)"
"""The same where gradients are compared, too, which FlashAttention-3 does not compute here."""
_FP8_PEERS = "cuDNN, FA3, which round nothing"
_README_FP8 = ("128", "ours with pre-pass")
_LAYER = "a linear layer in FP8, both passes, from 8,192 rows and 4,096 features on"
_KINDS = {
    "gdn": "gated delta rule", "rwkv7": "RWKV-7", "ssd": "Mamba-2 (SSD)", "kda": "KDA",
    "gla": "GLA", "retention": "retention",
}  # fmt: skip

GROUPS: dict[str, tuple[Figure, ...]] = {
    "attention": (
        _ways("attention, shapes of published models, `auto` after measuring (may run a peer)",
              f"{_BOTH_WAYS}, FlexAttention, FA4", "attention_zoo", by.zoo, "learned", short=True),
        _ways("… our own kernels alone", "the same",
              "attention_zoo", by.own_zoo, short=True),
        _ways("… of these, the shapes measured beside FA4 as well",
              f"{_BOTH_WAYS}, FlexAttention, FA4", "attention_zoo", by.zoo, "learned", "fa4"),
        _ways("… all of them, before `auto` has measured any",
              f"{_BOTH_WAYS}, FlexAttention, FA4", "attention_zoo", by.zoo, "auto"),
        _ways("attention, shapes that `auto` was tuned for, our own kernels",
              f"{_BOTH_WAYS}, FA4", "attention_grid_peers", by.grid, OURS),
        _ways("`accel.flex_attention` (may run a peer)", "FlexAttention, compiled",
              "attention_flex", by.flex, "flex"),
        _ways("… our own kernels alone", "FlexAttention, compiled", "attention_flex_own",
              partial(by.flex, own=True, file="attention_flex_own"), "flex"),
        _ways("`accel.flex_attention` (may run a peer)", "FlexAttention's backend FLASH",
              "attention_flex", by.flex, "flex FLASH"),
        _ways("… the cells in which it ran our own kernel", "FlexAttention's backend FLASH",
              "attention_flex", partial(by.flex, own=True), "flex FLASH"),
        *(
            Figure(f"attention in FP8, head size {size}, {words}", _FP8_PEERS, "attention_fp8",
                   partial(by.fp8_attention, size, ours), short=(size, ours) == _README_FP8)
            for size in ("64", "128", "256")
            for ours, words in (("ours", "the kernel alone"),
                                ("ours with pre-pass", "rounding included"))
        ),
        _column("decoding, keys and values in bf16", f"{_PEERS}, FlashMLA",
                "attention_decoding", "speed_beside_best_peer", "model", "batch", "keys", "queries",
                cache="bf16", implementation="ours"),
        Figure("… in pages of 16 tokens, as `gpudeck serve` keeps them", f"{_PEERS}, FlashMLA",
               "attention_decoding", by.paged_decoding, counts=lambda row: row["cache"] == "bf16"),
    ),
    "products": (
        _large_product("products in bf16", "cuBLAS", "bfloat16", short=True),
        _small_product("cuBLAS", "bfloat16"),
        _column("… all, `auto` once it has measured a shape", "our kernels, cuBLAS",
                "gemm_auto", "learned_share", "layer", "m", precision="bfloat16"),
        _large_product("products in FP8, scales of blocks,", "PyTorch", "fp8-block1x128"),
        _small_product("PyTorch", "fp8-block1x128"),
        _large_product("products in FP8, scales of rows,", "PyTorch", "fp8-row"),
        _small_product("PyTorch", "fp8-row"),
        Figure("products of experts in one kernel", "one dense product of that size by cuBLAS",
               "grouped", partial(by.experts, "dense cublas")),
        Figure("products of experts in one kernel", "one dense product of that size by ours",
               "grouped", partial(by.experts, "dense hopper")),
        _column("one vector times weights in four bits", "torch's int4 kernel", "int4",
                "times_torch_int4", "layer", m="1", contender="auto"),
        *(
            _column(what, peer, "int4", f"times_{peer.lower()}", "layer", "m", **wanted)
            for peer in ("Marlin", "Machete")
            for what, wanted in (
                ("one vector times weights in four bits", {"m": "1", "contender": "auto"}),
                ("… up to 64 vectors", {"contender": "auto"}),
            )
            if by.ratios("int4", f"times_{peer.lower()}", ("layer", "m"), **wanted)
        ),
        _column("… its bytes a second", "a copy in memory", "int4", "of_copy", "layer",
                m="1", contender="auto"),
        Figure(_LAYER, "the layer in bf16", "fp8_linear", partial(by.layers, "row", "bf16", 4096),
               counts=_is_scaled_by_row),
        Figure("… with scales of earlier steps", "the layer in bf16", "fp8_linear",
               partial(by.layers, "delayed", "bf16", 4096),
               counts=lambda row: row["layer"] == "delayed"),
        Figure("… with scales of earlier steps, as CUDA graphs", "the layer in bf16",
               "fp8_linear_graphs", partial(by.layers, "delayed", "bf16", 4096, graph=True,
                                            file="fp8_linear_graphs")),
        Figure(_LAYER, "torchao's recipes, compiled", "fp8_linear",
               partial(by.layers, "row", "torchao", 4096), short=True, counts=_is_scaled_by_row),
        Figure("… uncompiled, steps as CUDA graphs", "the layer in bf16", "fp8_linear",
               partial(by.layers, "row", "bf16", 4096, graph=True), counts=_is_scaled_by_row),
        Figure("… uncompiled, steps as CUDA graphs", "torchao's recipes, compiled, as CUDA graphs",
               "fp8_linear", partial(by.layers, "row", "torchao", 4096, graph=True),
               counts=_is_scaled_by_row),
        Figure("… with the smaller layers that were measured", "the layer in bf16", "fp8_linear",
               partial(by.layers, "row", "bf16", 0)),
        Figure("… all of them, converted where a measurement says so", "the layer in bf16",
               "fp8_linear", partial(by.layers, "auto", "bf16", 0)),
        Figure("a transformer layer in FP8, forward and backward, 2,048 to 16,384 tokens",
               "the layer in bf16, each in its fastest way (as it is, compiled or as a CUDA graph)",
               "fp8_engine", by.transformer_layers),
    ),
    "linear attention": (
        *_tuned(by.TRITON, ""),
        *(figure for kind in _KINDS for figure in _tuned(by.TRITON, kind)),
        *_tuned(by.NEWER_TRITON, "", short=True),
        *(figure for kind in _KINDS for figure in _tuned(by.NEWER_TRITON, kind)),
        *(
            _ways(f"linear attention: {words}", "fla-core, briefly tuned", "linear_attention",
                  by.linear, kind)
            for kind, words in _KINDS.items()
            if not by.linear_tuned("backward", kind)
        ),
        *_beside("gdn", "flashqla", "FlashQLA"),
        *_beside("kda", "cudnn", "cuDNN"),
    ),
}  # fmt: skip


def table(names: Iterable[str]) -> str:
    """Return groups of figures as Markdown."""
    lines = [_HEAD]
    for name in names:
        for figure in GROUPS[name.removesuffix(WHOLE)]:
            if name.endswith(WHOLE) or (figure.short and figure.forward()):
                lines.append(figure.line(whole=name.endswith(WHOLE)))
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return a document with its tables computed anew."""

    def computed(m: re.Match[str]) -> str:
        names = m["names"]
        own = program_table(names) if names in TABLES else table(names.split(", "))
        return m[1] + own + m[3]

    return _MARKED.sub(computed, text)


def main() -> None:
    """Write the tables into the documents."""
    for name in DOCUMENTS:
        document = ROOT / name
        document.write_text(filled(document.read_text()))


if __name__ == "__main__":
    main()
