"""Find attention in Python files, notebooks and folders, without running any of their code."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from gpudeck.accel.inject import vocabulary as words
from gpudeck.accel.inject.finding import Edit, Finding, Kind, Site, Speedup
from gpudeck.accel.inject.gain import gain, is_causal, saved, sizes
from gpudeck.accel.inject.product import Product
from gpudeck.accel.inject.project import Function, Module, Project
from gpudeck.accel.inject.shadows import shadowed
from gpudeck.accel.inject.source import Unreadable, shown
from gpudeck.accel.inject.speedup import Before, predicted
from gpudeck.accel.inject.trace import Trace
from gpudeck.language.text import Message, Text, joined, phrase

OUTSIDE = "<module>"
SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "build", "dist"))
_ATTENTION = re.compile(r"softmax|attention|attn|xformers", re.I)
"""What a file with attention contains."""
_WORTH = re.compile(r"softmax|attention|attn|xformers|@|mm\(|matmul|einsum", re.I)
"""What a function contains in which attention begins or continues."""
_TWICE = re.compile(r"create_graph\s*=\s*True|\bforward_ad\b|\btorch\.func\b|\bfunctorch\b")


def scan(paths: Iterable[str | Path]) -> list[Finding]:
    """Return every attention in files and folders, in the order of files and lines."""
    return [site.finding for site in sites(paths)]


def sites(
    paths: Iterable[str | Path], progress: Callable[[Path], None] = lambda path: None
) -> Iterator[Site]:
    """Yield every attention, with the changes that link it.

    Args:
        progress: called before each file is read; what it raises ends the scan.
    """
    project = Project()
    for path in files(paths):
        progress(path)
        try:
            yield from of_module(project, project.module(path))
        except Unreadable as e:
            yield Site(Finding(shown(path), e.line, "leave", "", e.why))


def libraries(paths: Iterable[str | Path]) -> list[str]:
    """Return the libraries with models of their own that files import, in alphabetical order."""
    project, found = Project(), set[str]()
    for path in files(paths):
        with contextlib.suppress(Unreadable):
            names = project.module(path).imports.values()
            found |= {name.partition(".")[0] for name in names} & words.MODEL_LIBRARIES
    return sorted(found)


def files(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the Python files and notebooks of files and folders; links within folders are not
    followed."""
    for given in map(Path, paths):
        if not os.path.isdir(given):  # noqa: PTH112 - which is false for names that are too long
            yield given
            continue
        for folder, inner, names in os.walk(given):
            inner[:] = sorted(
                name for name in inner if name not in SKIPPED and not name.startswith(".")
            )
            for name in sorted(names):
                path = Path(folder, name)
                if path.suffix in (".py", ".ipynb") and not path.is_symlink():
                    yield path


def of_module(project: Project, module: Module) -> list[Site]:
    """Return the attentions of one module.

    Raises:
        Unreadable: if its code is too deeply nested to be followed.
    """
    try:
        return _of_module(project, module)
    except RecursionError as e:
        raise Unreadable(phrase("its code is too deeply nested to be followed")) from e


def _of_module(project: Project, module: Module) -> list[Site]:
    traced = []
    if not _ATTENTION.search(module.source.text):
        return []
    for owner, function, name in functions(module):
        first, last = function.lineno - 1, function.end_lineno or len(module.starts)
        end = module.starts[last] if last < len(module.starts) else len(module.source.text)
        if not _WORTH.search(module.source.text, module.starts[first], end):
            continue
        trace = Trace(project)
        trace.run(module, owner, function)
        traced.append((owner, function, name, trace))
    helpers: frozenset[ast.AST] = frozenset().union(*(trace.followed for *_, trace in traced))
    homes = {id(node): (owner, function, name) for owner, function, name, _ in traced
             for node in ast.walk(function) if isinstance(node, (ast.Call, ast.BinOp))}  # fmt: skip
    found: dict[int, Site] = {}
    for node, products in _reached(module, traced, helpers, homes).items():
        owner, home, name = homes[node]
        problems = [problem for product in products for problem in product.problems]
        # of several traces, the one that came to the values describes it best
        best = max(products, key=lambda product: (bool(product.softmax), bool(product.used)))
        if best.softmax and (best.used or best.written != "softmax"):
            why = _hindrance(module, home, owner)
            found[node] = _site(replace(best, problems=problems), owner, home, name, why)
    for *_, trace in traced:
        for call, library in trace.found.library.values():
            if id(call) in homes:
                owner, home, name = homes[id(call)]
                why = _hindrance(module, home, owner)
                found[id(call)] = _library(module, owner, home, call, library, name, why)
    return _certain(sorted(found.values(), key=lambda site: site.finding.line))


def _certain(listed: list[Site]) -> list[Site]:
    """Return the sites, without the predictions for attention by hand beside a fused call.

    Programs choose one of the two as they run, mostly the fused one, and which is not known.
    """
    fused = {s.function for s in listed if s.finding.kind in ("sdpa", "library")}
    return [
        msgspec.structs.replace(site, finding=msgspec.structs.replace(site.finding, speedup=None))
        if site.function in fused and site.finding.kind == "by hand"
        else site
        for site in listed
    ]


Traced = tuple[ast.ClassDef | None, Function, str, Trace]


def _reached(
    module: Module,
    traced: Iterable[Traced],
    helpers: frozenset[ast.AST],
    homes: Container[int],
) -> dict[int, list[Product]]:
    """Return the products of a module by their nodes, with what each trace found about them."""
    reached: dict[int, list[Product]] = {}
    for _, function, _, trace in traced:
        private = function.name.startswith("_") and not function.name.endswith("__")
        inner = {id(node) for node in ast.walk(function)} if function in helpers else set()
        for product in trace.found.products.values():
            node = id(product.node)
            # what a private helper returns is judged where it is called
            judged_there = node in inner and (private or product.written == "softmax")
            if product.module is module and node in homes and not judged_there:
                reached.setdefault(node, []).append(product)
    return reached


def functions(module: Module) -> Iterator[tuple[ast.ClassDef | None, Function, str]]:
    """Yield all functions with the class that they belong to, then the statements outside them."""
    yield from _functions(module.tree.body, None, "")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    rest = [s for s in module.tree.body if not isinstance(s, kinds)]
    if rest:
        none = ast.arguments([], [], None, [], [], None, [])
        outside = ast.FunctionDef(OUTSIDE, none, rest, [], lineno=1, col_offset=0)
        yield None, outside, OUTSIDE


def _functions(
    body: Iterable[ast.stmt], owner: ast.ClassDef | None, prefix: str
) -> Iterator[tuple[ast.ClassDef | None, Function, str]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, statement, f"{prefix}{statement.name}.")
        elif isinstance(statement, Function):
            yield owner, statement, f"{prefix}{statement.name}"
            yield from _functions(_nested(statement), owner, f"{prefix}{statement.name}.")
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            yield from _functions(_nested(statement), owner, prefix)


def _nested(statement: ast.stmt) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, (Function, ast.ClassDef)):
            found.append(child)
        elif isinstance(child, (ast.stmt, ast.excepthandler)):
            found += _nested(child)  # type: ignore[arg-type]
    return found


def _hindrance(module: Module, function: Function, owner: ast.ClassDef | None) -> Text | None:
    """Return why nothing in a function can be linked; None if nothing speaks against it."""
    if module.source.generated:
        return phrase("a program wrote this file; change that program")
    decorators = [
        module.dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list
    ]
    if function.name in module.scripted or any(
        d in ("torch.jit.script", "torch.jit.script_method") for d in decorators
    ):
        return phrase("TorchScript compiles this function")
    bases = [module.dotted(base) for base in owner.bases] if owner else []
    if "torch.autograd.Function" in bases or "torch.jit.ScriptModule" in bases:
        return phrase("this class defines its own gradients or is TorchScript")
    return _differentiated(module) or shadowed(module, function)


def _differentiated(module: Module) -> Text | None:
    """Return where a file differentiates gradients; None if it does not."""
    if "twice" not in module.derived:
        found, text = _TWICE.search(module.source.text), None
        if found is not None:
            line = module.source.text.count("\n", 0, found.start()) + 1
            text = phrase(
                "gradients are differentiated, which our attention does not offer (line {line})",
                line=line,
            )
        module.derived["twice"] = text
    known: Text | None = module.derived["twice"]
    return known


def _place(module: Module, line: int) -> tuple[int, int]:
    """Return the line as a person counts it, and the number of the notebook's cell or 0."""
    cells = module.source.cells
    at = module.starts[line - 1]
    for start, end, number in cells:
        if start <= at <= end:
            return line - module.source.text.count("\n", 0, start), number + 1
    return line, 0


def _in_cell(form: Message, cell: int) -> Message:
    return phrase("cell {n}: {what}", n=cell, what=form) if cell else form


def _speedup(
    module: Module, owner: ast.ClassDef | None, home: Function, before: Before, masked: bool
) -> Speedup | None:
    """Return what linking an attention of the sizes that its file names is predicted to bring.

    Only causal masks were measured; others are slower.
    """
    causal = masked and is_causal(module, owner, home)
    shape = sizes(module).shape(causal)
    return predicted(shape, before) if shape and causal == masked else None


def _site(
    product: Product, owner: ast.ClassDef | None, home: Function, name: str, hindrance: Text | None,
) -> Site:  # fmt: skip
    module = product.module
    line, cell = _place(module, product.node.lineno)
    kind: Kind = "softmax" if product.written == "softmax" else "by hand"
    if kind == "softmax":
        form = phrase("softmax over a tensor that is no product of queries and keys")
        reason = phrase("linear attention, or a form that cannot be followed")
    else:
        form = _by_hand(product)
        reason = phrase("accel.attention in its place: {what}", what=gain(module))
        if "dropout" in product.steps:
            reason = phrase(
                "{what}; while dropout is active it is computed as written", what=reason
            )
    why = hindrance
    if not why and product.problems and kind == "by hand":
        where, text = min(product.problems, key=lambda problem: problem[0])
        why = phrase("{what} (line {line})", what=text, line=_place(module, where)[0])
    if not why and not product.used:
        why = phrase("the weights are not multiplied with values here")
    steps = tuple(product.steps)
    if kind == "softmax" or why:
        left = Finding(
            _shown(module), line, "leave", _in_cell(form, cell), why or reason, kind=kind,
            steps=steps,
        )  # fmt: skip
        return Site(left, function=name)
    masked = not {"mask", "bias"}.isdisjoint(product.steps)
    speedup = _speedup(module, owner, home, "by hand", masked)
    finding = Finding(
        _shown(module), line, "link", _in_cell(form, cell), reason, speedup, kind, steps,
        saved(module),
    )  # fmt: skip
    end = home.end_lineno or max(product.lines)
    lines = [n for n in product.lines if product.node.lineno <= n <= end]
    ends = tuple(sorted(product.ends))
    return Site(finding, tuple(sorted(product.edits)), name, min(lines), max(lines), ends)


def _by_hand(product: Product) -> Text:
    used = product.used or "softmax"
    if not product.steps:
        how = joined((product.written, used))
        return phrase("softmax(Q Kᵀ) V by hand: {how}", how=how)
    steps = joined((*map(Text, product.steps), used))
    return phrase("softmax(Q Kᵀ) V by hand: {how} with {steps}", how=product.written, steps=steps)


def _library(
    module: Module, owner: ast.ClassDef | None, home: Function, call: ast.Call, library: str,
    name: str, hindrance: Text | None,
) -> Site:  # fmt: skip
    line, cell = _place(module, call.lineno)
    if library != words.SDPA or hindrance:
        form, why = words.LIBRARY.get(library, ("scaled_dot_product_attention", ""))
        kind: Kind = "sdpa" if library == words.SDPA else "library"
        finding = Finding(
            _shown(module), line, "leave", _in_cell(form, cell), hindrance or why, kind=kind
        )
        return Site(finding, function=name)
    start, end = module.span(call.func)
    masked = len(call.args) > 3 or not {"attn_mask", "is_causal"}.isdisjoint(
        k.arg for k in call.keywords
    )
    finding = Finding(
        _shown(module), line, "link",
        _in_cell(phrase("scaled_dot_product_attention, called"), cell),
        phrase("accel.attention in its place chooses the fastest measured kernel; calls that it"
               " does not compute go to torch"),
        _speedup(module, owner, home, "sdpa", masked), "sdpa",
    )  # fmt: skip
    edit = Edit(start, end, "{link}.scaled_dot_product_attention")
    last = call.end_lineno or call.lineno
    lines = tuple(range(call.lineno, last + 1))
    return Site(finding, (edit,), name, call.lineno, last, lines)


def _shown(module: Module) -> str:
    return str(module.source.path)
