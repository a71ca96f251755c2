"""Word answers about versions, and about which backend computes attention."""

from __future__ import annotations

from gpudeck.assistant.answers.values import cell, names, sheet, why_absent
from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.attention_on_card import Shape
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Row, Rows, Value, number
from gpudeck.language.words import Words

_SENTENCES = {
    "gpudeck": "GPU Deck is of version {version}.",
    "driver": "The driver is of version {version}.",
    "cuda": "The driver supports CUDA up to version {version}.",
    "torch": "torch is installed beside GPU Deck in version {version}; a job may use another.",
    "triton": "Triton is installed beside GPU Deck in version {version}.",
}
_REASONS = {
    "measured": "This was measured at this shape on {gpus}.",
    "predicted": "This is predicted from measurements on {gpus}.",
    "order": "Nothing like it was measured on such a card, so the first that can compute it runs.",
}


def versions(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return the version of a program, or those of all."""
    told: list[str] = []
    for row in rows.rows:
        if row.values[0] is not None:
            text = _SENTENCES[row.key.removeprefix("version ")]
            told.append(words.text(text, version=cell(row, 0, rows, words)))
        else:
            why = why_absent(row, 0, words)
            told.append(words.text("The version of {name} is unknown: {why}.", name=row.label,
                                   why=why))  # fmt: skip
    return [" ".join(told)]


def attention(query: Query, rows: Rows, words: Words) -> list[str]:
    """Return which backend would run in each pass, why, and what was assumed."""
    notes = {note.kind: note.values for note in rows.notes}
    card, forward, backward, *alike = map(str, notes["card"])
    who = names([Row("", one, ()) for one in alike], words)
    basis, gpus = (str(value) for value in notes["basis"])
    about = {"who": who, "card": phrases.escaped(card, 80)}
    first = words.text(
        "On {who} ({card}), attention would run with {forward} forward and {backward} backward.",
        **about, forward=forward, backward=backward,
    )  # fmt: skip
    why = words.text(_REASONS[basis], gpus=phrases.escaped(gpus, 200))
    if basis == "order":
        tried = words.listed([row.label for row in rows.rows])
        first = words.text("On {who} ({card}), attention is tried with {names}, in this order.",
                           **about, names=tried)  # fmt: skip
    lacking = [words.text("Not installed here: {names}.", names=words.listed([*map(str, left)]))
               for left in [notes.get("not installed", ())] if left]  # fmt: skip
    explain = words.text(
        "`accel.explain(q, k, v)` says it of your own tensors: with what this machine has measured "
        "itself, and why a backend cannot run."
    )
    table = sheet(rows, words, "Backend") if number(rows.rows[0].values[0]) else ""
    shape = _shape(notes["shape"], notes["said"], words)
    return [f"{first} {why}", shape, table, " ".join((*lacking, explain))]


def _shape(values: tuple[Value, ...], said: tuple[Value, ...], words: Words) -> str:
    """Return the shape, and which parts of it were assumed."""
    shape = dict(zip(Shape._fields, values, strict=True))
    told = {
        "dtype": str(shape["dtype"]),
        "head_dim": words.text("head size {n}", n=shape["head_dim"]),
        "causal": words.text("causal" if shape["causal"] else "not causal"),
        "seq": words.text("{n} tokens", n=shape["seq"]),
        "heads": words.text("{n} heads, {kv} for keys", n=shape["heads"],
                            kv=shape["kv_heads"]),
        "batch": words.text("batch {n}", n=shape["batch"]),
    }  # fmt: skip
    assumed = [text for name, text in told.items() if name not in said]
    known = [text for name, text in told.items() if name in said]
    parts = [words.text("For {parts}.", parts=words.listed(known))] if known else []
    if assumed:
        parts.append(words.text("I assumed: {parts}.", parts=words.listed(assumed)))
    return " ".join(parts)
