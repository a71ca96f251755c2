"""Run a file's own code before and after its attention is linked, and print what came out.

    python -m gpudeck.accel.inject.proving FILE [cpu|cuda]

It runs code of the file. `gpudeck.accel.inject.prove` starts it in a process with limits.
"""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from gpudeck.accel.inject import guesses
from gpudeck.accel.inject.compare import Run, trial
from gpudeck.accel.inject.finding import Site, Speedup
from gpudeck.accel.inject.guesses import Sizes
from gpudeck.accel.inject.project import Function
from gpudeck.accel.inject.prove import Proof, Trial, not_run
from gpudeck.accel.inject.rewrite import Change, changes
from gpudeck.accel.inject.scores import SMALL
from gpudeck.accel.inject.speedup import predicted
from gpudeck.accel.lessons.store import learning
from gpudeck.language.text import Message, Number, joined, phrase

SIZES = {
    "cpu": (Sizes(), Sizes(1, 2, 64, 16)),
    "cuda": (Sizes(2, 4, 64, 64), Sizes(4, 16, 2048, 64)),
}
"""By device. The largest size on a GPU is one at which speed and memory mean something."""
MOST_TRIALS = 40
ENOUGH = 3
"""Trials of different kinds that are made with one set of sizes."""


def load(path: Path, text: str) -> dict[str, Any]:
    """Run a module's statements one by one, and return its names.

    What a failed import would have bound is bound to a class that does nothing, and other
    statements that fail are left out, as the attention rarely needs them.
    """
    package: list[str] = []
    folder = path.resolve().parent
    while (folder / "__init__.py").exists():
        package.insert(0, folder.name)
        folder = folder.parent
    for place in (str(folder), str(path.resolve().parent)):
        if place not in sys.path:
            sys.path.insert(0, place)
    module = types.ModuleType(f"gpudeck_proof_{path.stem}")
    module.__file__, module.__package__ = str(path), ".".join(package)
    sys.modules[module.__name__] = module
    for statement in ast.parse(text).body:
        code = compile(ast.Module([statement], []), str(path), "exec", dont_inherit=True)
        try:
            exec(code, module.__dict__)  # noqa: S102 - that is the task
        except Exception:  # noqa: BLE001 - people's code may raise anything
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for name in statement.names:
                    bound = (name.asname or name.name).partition(".")[0]
                    module.__dict__.setdefault(bound, _Absent)
    return module.__dict__


class _Absent:
    """Stand for what cannot be imported."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def prove(change: Change, device: str = "cpu") -> Iterator[Proof]:
    """Prove all linked attentions of a file, one by one."""
    programs = change.programs
    before, after = (load(change.path, text) for text in programs)
    tree = ast.parse(programs[0])
    for site in change.linked:
        yield _prove(change, site, tree, before, after, device)


def _without_gpu(change: Change) -> Iterator[Proof]:
    why = phrase("there is no CUDA GPU that torch can use; leave out --device cuda")
    for site in change.linked:
        yield not_run(str(change.path), site.finding.line, why)


def _prove(
    change: Change, site: Site, tree: ast.Module, before: dict[str, Any], after: dict[str, Any],
    device: str,
) -> Proof:  # fmt: skip
    path, line = str(change.path), site.finding.line
    ends = {end + _shift(change) for end in site.ends}
    best = not_run(path, line, phrase("no inputs were found with which its code runs"))
    for ran, trials in itertools.chain(
        _modules(site, before, after, ends, device),
        _slices(change, site, tree, before, after, ends, device),
    ):
        bad = [t for t in trials if not t.passed]
        if bad:
            worst = max(bad, key=lambda t: t.error_after)
            verdict = phrase(
                "wrong: an error of {error}, {rest}",
                error=Number(worst.error_after, ".1e"),
                rest=joined((worst.dtype, worst.inputs)),
            )
            return Proof(path, line, "wrong", verdict, ran, tuple(trials))
        if any(t.linked for t in trials):
            speedup = _predicted(site, trials) if device == "cpu" else None
            return Proof(path, line, "proved", phrase("proved"), ran, tuple(trials), speedup)
        if trials:
            reasons = "; ".join(sorted({r for t in trials for r in t.ran}))
            best = not_run(path, line, reasons or phrase("it was not reached"), ran, tuple(trials))
    return best


def _predicted(site: Site, trials: list[Trial]) -> Speedup | None:
    """Return the speed-up that is predicted for the largest attention that ran."""
    shapes = [t.shape for t in trials if t.linked and t.shape is not None]
    if not shapes:
        return None
    largest = max(shapes, key=lambda s: s.batch * s.heads * s.queries * s.keys)
    return predicted(largest, "by hand" if site.finding.kind == "by hand" else "sdpa")


def _modules(
    site: Site, before: dict[str, Any], after: dict[str, Any], ends: set[int], device: str
) -> Iterator[tuple[Message, list[Trial]]]:
    """Run the module whose method it is in."""
    owner, _, _ = site.function.rpartition(".")
    cls, twin = before.get(owner), after.get(owner)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module) and isinstance(twin, type)):
        return
    trials: list[Trial] = []
    words = ""
    for sizes in SIZES[device]:
        made = zip(guesses.instances(cls, sizes), guesses.instances(twin, sizes), strict=False)
        for (old, how), (new, _) in made:
            words = how
            found = _run_module(old, new, ends, sizes, device)
            trials += found
            if found:
                break
    yield words, trials


def _run_module(
    old: nn.Module, new: nn.Module, ends: set[int], sizes: Sizes, device: str
) -> list[Trial]:
    with torch.no_grad():
        for p in old.parameters():  # modules that start at zero would prove nothing
            p.copy_(torch.randn_like(p) * 0.2)
    if new.load_state_dict(old.state_dict(), strict=False).missing_keys:
        return []
    old.eval(), new.eval()
    trials: list[Trial] = []
    kinds: set[tuple[str, ...]] = set()
    for tried, inputs in enumerate(guesses.calls(old.forward, sizes)):
        kind = tuple(sorted(n for n, v in inputs.items() if "mask" in n and v is not None))
        if len(trials) >= 2 * ENOUGH or tried > guesses.MOST_TRIES or (kind in kinds and not kind):
            break
        exact = _caller(old, device, torch.float64)
        made = _trials(_caller(old, device), _caller(new, device), exact, inputs, ends, device)
        kinds |= {kind} if made else set()
        trials += made
    return trials


class _caller:  # noqa: N801 - it is used as a function
    """Call a copy of a module in the precision of its inputs."""

    def __init__(self, module: nn.Module, device: str, dtype: torch.dtype = torch.float32) -> None:
        self.module = copy.deepcopy(module).to(device, dtype)

    def __call__(self, inputs: dict[str, Any]) -> Any:
        floats = [t.dtype for t in inputs.values() if isinstance(t, torch.Tensor)]
        dtype = next((d for d in floats if d.is_floating_point), torch.float32)
        return self.module.to(dtype)(**inputs)

    def parameters(self) -> list[nn.Parameter]:
        """Return what gradients are compared of, too."""
        return [p for p in self.module.parameters() if p.requires_grad]


def _trials(
    before: Run, after: Run, exact: Run, inputs: dict[str, Any], ends: set[int], device: str
) -> list[Trial]:
    """Compare in two precisions; nothing if the original does not run with these inputs."""
    words = ", ".join(f"{n} {_words(v)}" for n, v in inputs.items() if n != "self")
    made: list[Trial] = []
    for dtype in (torch.float32, torch.bfloat16):
        try:
            made.append(trial(before, after, exact, inputs, dtype, words, ends, device))
        except Exception:  # noqa: BLE001, S112 - wrong inputs, which people's code may refuse anyhow
            continue
    return made


def _words(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "list" if isinstance(value, list) else str(value)[:20]
    kind = "bool" if value.dtype == torch.bool else ""
    return f"{kind}{list(value.shape)}"


def _slices(
    change: Change,
    site: Site,
    tree: ast.Module,
    before: dict[str, Any],
    after: dict[str, Any],
    ends: set[int],
    device: str,
) -> Iterator[tuple[Message, list[Trial]]]:
    """Run only the statements from the scores to the output, with values for what they read."""
    function = _function(tree, site)
    twin = ast.parse(change.programs[1])
    shift = _shift(change)
    if function is None:
        return
    body = _between(function.body, site.first, site.last)
    inner = _function(twin, site, shift)
    linked = _between(inner.body, site.first + shift, site.last + shift) if inner else None
    roles = _roles(body, site) if body else None
    if not body or not linked or roles is None:
        return
    outs = _outputs(body)
    old, new = (_runner(b, names, outs) for b, names in ((body, before), (linked, after)))
    free = [n for n in guesses.free_names(body) if n not in before and n not in _builtins()]
    trials: list[Trial] = []
    for sizes in SIZES[device]:
        seen = 0
        made = _attributes(tree, site, before)
        for inputs in guesses.statements(free, roles, sizes, made):
            found = _trials(old, new, old, inputs, ends, device)
            trials += found
            seen += any(t.linked for t in found)
            if seen >= ENOUGH or len(trials) > MOST_TRIALS:
                break
    yield phrase("lines {first} to {last}", first=site.first, last=site.last), trials


def _shift(change: Change) -> int:
    """Return how many lines the change adds, all of them at the top."""
    return change.text_after.count("\n") - change.text_before.count("\n")


def _builtins() -> set[str]:
    return set(dir(builtins))


def _function(tree: ast.Module, site: Site, shift: int = 0) -> Function | None:
    found = None
    for node in ast.walk(tree):
        if not isinstance(node, Function) or node.name != site.function.rpartition(".")[2]:
            continue
        if node.lineno <= site.first + shift <= (node.end_lineno or 0):
            found = node
    return found


def _between(body: list[ast.stmt], first: int, last: int) -> list[ast.stmt]:
    """Return the statements of the innermost block that hold all lines."""
    held = [s for s in body if s.lineno <= last and (s.end_lineno or s.lineno) >= first]
    if len(held) == 1:
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(held[0], name, [])
            found = _between(inner, first, last) if inner and isinstance(inner, list) else []
            if found and found[0].lineno <= first and (found[-1].end_lineno or 0) >= last:
                return found
    return held


def _roles(body: list[ast.stmt], site: Site) -> tuple[str, str, str] | None:
    """Return the names of queries, keys and values."""
    pairs: list[tuple[str, str]] = []
    for statement in body:
        for node in ast.walk(statement):
            sides: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                sides = [node.left, node.right]
            elif isinstance(node, ast.Call) and _called(node) in (
                "matmul",
                "bmm",
                "einsum",
                "baddbmm",
            ):
                first = {"einsum": 1, "baddbmm": 1}.get(_called(node), 0)
                sides = list(node.args[first:])
                if isinstance(node.func, ast.Attribute) and len(node.args) == 1:
                    sides.insert(0, node.func.value)
            elif isinstance(node, ast.Call) and _called(node) == "scaled_dot_product_attention":
                named = {k.arg: k.value for k in node.keywords}
                args = [*node.args, *(named[n] for n in ("query", "key", "value") if n in named)]
                if len(args) >= 3 and all(map(_first, args[:3])):
                    return _first(args[0]), _first(args[1]), _first(args[2])
            if len(sides) == 2:
                pairs.append((_first(sides[0]), _first(sides[1])))
    free = guesses.free_names(body)
    if len(pairs) < 2:
        return None
    (q, k), (a, b) = pairs[0], pairs[-1]
    v = b if b in free else a
    return (q, k, v) if {q, k, v} <= set(free) else None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _first(node: ast.expr) -> str:
    names = [
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in ("self", "torch")
    ]
    return names[0] if names else ""


def _outputs(body: list[ast.stmt]) -> list[str]:
    """Return the names that the last statement writes; none if it returns its value."""
    return [
        n.id for n in ast.walk(body[-1]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


def _runner(body: list[ast.stmt], names: dict[str, Any], outs: list[str]) -> Run:
    """Make a function of statements; it returns their outputs."""
    end = ast.parse("_out = (" + "".join(f"{n}, " for n in outs) + ")").body
    copied = copy.deepcopy(body)
    if isinstance(copied[-1], ast.Return):
        value = copied[-1].value or ast.Constant(None)
        copied[-1:] = [ast.Assign([ast.Name("_out", ast.Store())], value)]
        end = []
    code = compile(ast.fix_missing_locations(ast.Module([*copied, *end], [])), "<slice>", "exec")

    def run(inputs: dict[str, Any]) -> Any:
        scope = names | inputs
        exec(code, scope)  # noqa: S102 - that is the task
        return scope["_out"]

    return run


def _attributes(tree: ast.Module, site: Site, names: dict[str, Any]) -> dict[str, Any]:
    """Make the modules without parameters that the class keeps in attributes."""
    owner = site.function.rpartition(".")[0].rpartition(".")[2]
    made: dict[str, Any] = {}
    for cls in ast.walk(tree):
        if not isinstance(cls, ast.ClassDef) or cls.name != owner:
            continue
        for node in ast.walk(cls):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                text = ast.unparse(node.value)
                kind = next((k for k in ("Softmax", "Dropout", "Identity") if f"{k}(" in text), "")
                if kind == "Softmax":
                    made[node.targets[0].attr] = eval(text, dict(names))  # noqa: S307 - as above
                elif kind:
                    made[node.targets[0].attr] = nn.Identity()
    return made


def main() -> int:
    """Prove the file that the command line names; print a line of JSON for each attention."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    SMALL["cuda"] = 0  # small inputs are linked, too, to be compared
    learning("off")  # a size runs a few times: compiling all backends would take longest
    missing = device == "cuda" and not torch.cuda.is_available()
    made, _ = changes([Path(sys.argv[1])])
    out, sys.stdout = sys.stdout, sys.stderr  # what people's code prints is not a proof
    for change in made:
        for proof in _without_gpu(change) if missing else prove(change, device):
            row = msgspec.structs.replace(proof, device=device)
            out.write(msgspec.json.encode(row).decode() + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
