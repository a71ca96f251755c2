"""Show in the window's language what was found in code: forms, reasons, verdicts of proofs."""

from __future__ import annotations

from gpudeck.app.language.patterns import Patterns
from gpudeck.app.language.texts import tr_noop

LINKED_FORM = tr_noop("its attention is linked")
LINKED = tr_noop(
    "It is linked already. Undo restores the file, and keeps later edits of other lines."
)
_USES = (
    tr_noop("the attention scores {what}"),
    tr_noop("the attention weights {what}"),
    tr_noop("are collected"),
    tr_noop("are an index"),
    tr_noop("are negated"),
    tr_noop("are compared"),
    tr_noop("are tested"),
    tr_noop("go into an unusual product"),
    tr_noop("are selected after the softmax"),
    tr_noop("are passed to {function}"),
    tr_noop("are a bias of other scores"),
    tr_noop("are changed after the softmax"),
    tr_noop("go into another product before a softmax"),
    tr_noop("are mixed between heads"),
    tr_noop("are multiplied with scores"),
    tr_noop("are made of other scores"),
    tr_noop("are normalised twice"),
    tr_noop("are normalised over another axis"),
    tr_noop("are rearranged outside this file"),
    tr_noop("are used beside the output"),
    tr_noop("are shown"),
    tr_noop("are unpacked"),
    tr_noop("are kept in {place}"),
    tr_noop("are stored in a container"),
    tr_noop("are added into another tensor"),
    tr_noop("are changed in a container"),
    tr_noop("are returned"),
    tr_noop("are iterated over"),
    tr_noop("two tensors of scores are combined"),
    tr_noop("dropout is always active"),
    tr_noop("a new Dropout is always active"),
    tr_noop("it is called in an unusual way"),
)
"""Why attention is left alone: what is done with its scores or weights."""
_PATTERNS = Patterns(
    (
        LINKED_FORM,
        LINKED,
        tr_noop("proved"),
        tr_noop("restored"),
        tr_noop("restored; later edits elsewhere in it were kept"),
        tr_noop("not run: {why}"),
        tr_noop("the process that proves it ended early"),
        tr_noop("there is no CUDA GPU that torch can use; leave out --device cuda"),
        tr_noop("no inputs were found with which its code runs"),
        tr_noop("wrong: an error of {error}, {rest}"),
        tr_noop("cell {n}: {what}"),
        tr_noop("scaled_dot_product_attention, called"),
        tr_noop("softmax(Q Kᵀ) V by hand: {how} with {steps}"),
        tr_noop("softmax(Q Kᵀ) V by hand: {how}"),
        tr_noop("softmax over a tensor that is no product of queries and keys"),
        tr_noop("linear attention, or a form that cannot be followed"),
        tr_noop("a softmax that no values follow"),
        tr_noop("accel.attention in its place: {what}"),
        tr_noop(
            "accel.attention in its place chooses the fastest measured kernel; calls that it does"
            " not compute go to torch"
        ),
        tr_noop(
            "the scores, queries x keys for each head, are no longer kept in memory: {size} for a"
            " sequence of {tokens} tokens and {heads} heads in 16 bits"
        ),
        tr_noop(
            "the scores, queries x keys for each head, are no longer kept in memory: {size} for a"
            " sequence of {tokens} tokens and each head in 16 bits"
        ),
        tr_noop("the scores, queries x keys for each head, are no longer kept in memory"),
        tr_noop(
            "predicted on an {gpu} for the attention alone: {forward} times as fast forward,"
            " {training} with the backward pass ({shape}, bfloat16)"
        ),
        tr_noop("the weights are not multiplied with values here"),
        tr_noop("a program wrote this file; change that program"),
        tr_noop("TorchScript compiles this function"),
        tr_noop("this class defines its own gradients or is TorchScript"),
        tr_noop("gradients are differentiated, which our attention does not offer (line {line})"),
        tr_noop("only the largest scores are kept (top-k)"),
        tr_noop("the scores are sorted"),
        tr_noop("Gumbel softmax is not softmax"),
        tr_noop("log-softmax is not softmax"),
        tr_noop("the weights are sigmoids, not a softmax"),
        tr_noop("the weights are rectified, not a softmax"),
        tr_noop("the softmax is written by hand from exponentials"),
        tr_noop("sparsemax is not softmax"),
        tr_noop("entmax is not softmax"),
        tr_noop("the scores are clamped"),
        tr_noop("it is fused already; its caller chooses what runs"),
        tr_noop("it is fused already; {function} has the same arguments"),
        tr_noop("its mask and scores are programs, which torch.compile fuses"),
        tr_noop("{what}; while dropout is active it is computed as written"),
        tr_noop("{what} (line {line})"),
        *_USES,
        tr_noop("nothing in it is linked"),
        tr_noop("it was changed meanwhile; scan it again"),
        tr_noop("it is no regular file"),
        tr_noop(
            "it has {n} hard links, which a change would separate; put a copy of the file in its"
            " place first"
        ),
        tr_noop("you have no permission to write it"),
        tr_noop("it cannot be read: {why}"),
        tr_noop("it cannot be written: {why}"),
        tr_noop("it is a symbolic link; name its target {path}"),
        tr_noop(
            "line {line} of the linked file was edited since; undo that edit first, or restore the"
            " file from your version control"
        ),
    ),
    {"n": r"\d+", "line": r"\d+", "tokens": r"[\d,]+", "heads": r"\d+"},
)


def told(text: str) -> str:
    """Return what is told of code in the window's language, as far as its words are known."""
    return _PATTERNS.translated(text)
