"""Show in the window's language what workloads tell: reasons, checks, verdicts, what is wrong."""

from __future__ import annotations

from app.language.patterns import Patterns
from app.language.texts import tr_noop

_REASONS = (
    tr_noop("pass"),
    tr_noop("fail: {rest}"),
    tr_noop("named"),
    tr_noop("named by the user"),
    tr_noop("named by the caller"),
    tr_noop("auto: {why}"),
    tr_noop("cannot do this: it {why}"),
    tr_noop("failed: {why}"),
    tr_noop("ran out of memory"),
    tr_noop("raised an error"),
    tr_noop("the fastest of {n} cells: {what}"),
    tr_noop("{n} of {total} cells were wrong, first {backend} at {what}"),
    tr_noop("{n} of {total} trials failed"),
    tr_noop("to repeat the worst: {command}"),
    tr_noop("{what} is {error}, above the bound {limit}"),
    tr_noop("the same kernel twice: {mean} ({low} to {high})"),
    tr_noop("float32 precision is set to {value}"),
    tr_noop("{n} measurements written to {file}"),
    tr_noop("measured fastest"),
    tr_noop("measured fastest here on {time}, {figures}"),
    tr_noop("measured fastest on {gpu}, {figures}"),
    tr_noop("measured fastest on {gpu}"),
    tr_noop("predicted from measurements on {gpu}, {figures}"),
    tr_noop("not measured on this GPU"),
    tr_noop("the first that can"),
    tr_noop("no kernel runs here"),
    tr_noop("the first of {backends} that can do it"),
    tr_noop("not {backend}: it {why}"),
)
_REFUSALS = (
    tr_noop("needs a CUDA GPU; the tensors are on {device}"),
    tr_noop("needs compute capability {version} or newer; this GPU has {rest}"),
    tr_noop("needs compute capability {version}; this GPU has {rest}"),
    tr_noop("needs the package triton, which comes with torch's CUDA builds"),
    tr_noop("cannot be loaded: {why}"),
    tr_noop("has no backward pass"),
    tr_noop("takes float16 and bfloat16, not {dtype}"),
    tr_noop("takes float16, bfloat16 and float32, not {dtype}"),
    tr_noop("takes head sizes up to {n}, not {size}"),
    tr_noop("takes no grouped heads"),
    tr_noop("takes no mask (causal and window excepted)"),
    tr_noop("takes no bias (causal and window excepted)"),
    tr_noop("takes no softcap"),
    tr_noop("takes no window"),
    tr_noop("takes no window on a CPU"),
    tr_noop("takes no ragged batches here"),
    tr_noop("takes no ragged batches on a CPU"),
    tr_noop("takes up to {n} queries, not {number}"),
    tr_noop("none"),
)
_CHECKS = (
    tr_noop("relative error, {n} rows"),
    tr_noop("relative error of {name}"),
    tr_noop("relative error"),
    tr_noop("largest error"),
    tr_noop("share of elements that are not finite, {n} rows"),
    tr_noop("share of elements that are not finite"),
    tr_noop("share of words that differ"),
)
_SIZES = (
    tr_noop("{what}, head size {size}, sequence {seq}, causal"),
    tr_noop("{what}, head size {size}, sequence {seq}"),
    tr_noop("forward"),
    tr_noop("backward"),
    tr_noop("{kind}, batch {n}, {tokens} tokens, {heads} heads of {size}"),
    tr_noop("{n} rows, {inputs} to {outputs} features"),
)
_MISTAKES = (
    tr_noop("is a whole number from {low} to {high}"),
    tr_noop("is a number from {low} to {high}"),
    tr_noop("is a whole number"),
    tr_noop("is a number"),
    tr_noop("is one of {choices}"),
    tr_noop("is yes or no"),
    tr_noop("takes up to {n} values"),
    tr_noop("takes any of {choices}"),
    tr_noop("names {values} twice"),
    tr_noop("{n} heads cannot share {heads} key/value heads: these must divide them"),
    tr_noop("got {value}"),
)
_LISTS = (tr_noop("{what}; {rest}"), tr_noop("{name}: {what}"))
"""The most general ones, which come last."""
_ANSWER = r"\w+"
_PATTERNS = Patterns(
    (*_REASONS, *_REFUSALS, *_CHECKS, *_SIZES, *_MISTAKES, *_LISTS),
    {
        "n": r"\d+",
        "total": r"\d+",
        "heads": r"\d+",
        "version": r"[\d.]+",
        "time": "[^,;]+",
        "gpu": "[^,;]+",
        "figures": "[^;]+",
        "seq": r"\d+",
        "backend": r"\w+",
        "name": _ANSWER,
    },
)


def told(text: str) -> str:
    """Return what a workload tells in the window's language, as far as its words are known."""
    return _PATTERNS.translated(text)
