"""List the workloads and their parameters, for forms and command lines, without torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec.structs import fields

from gpudeck.accel.attention.backend_table import NAMES as BACKENDS
from gpudeck.accel.training.settings import Settings as TrainingSettings
from gpudeck.extras import missing_of
from gpudeck.language.text import Number, Text, joined, phrase

AUTO = "0"
"""The value of a parameter that is chosen by itself."""
_MANY = 16
"""More parameters than a line can name."""


class Mistake(NamedTuple):
    """Say what is wrong with the value of a parameter."""

    text: Text
    """What the parameter is or takes, to follow its name."""
    got: str = ""
    """What is wrong, as a command line quotes it; empty where the text has it."""


class Param(msgspec.Struct, frozen=True):
    """Describe one parameter of a workload, for a form field and a command-line option."""

    name: str
    label: str
    kind: Literal["int", "float", "choice", "flag", "ints", "choices", "text"]
    """`ints` and `choices` are lists, separated by commas; `text` is anything, such as a path."""
    default: str
    """The default as a user types it; flags are "yes" or "no"."""
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    cpu_default: str | None = None
    """The default on a machine without a GPU, if it differs."""
    group: Literal["Shape", "Precision", "Run"] = "Run"
    """The part of a form that it belongs to."""
    auto: str = ""
    """What is chosen where the value is `AUTO`; empty if nothing is chosen by itself."""
    operations: tuple[str, ...] = ()
    """The values of the parameter `operation` that take it; empty for all of them."""

    def default_for(self, device_kind: str) -> str:
        """Return the default on a device of this kind (`nvidia`, `cpu`, `replay`)."""
        return (
            self.cpu_default
            if device_kind == "cpu" and self.cpu_default is not None
            else self.default
        )

    def is_automatic(self, value: object) -> bool:
        """Return whether a value, typed or as text, says that it is chosen by itself."""
        return bool(self.auto) and str(value) in (AUTO, "0.0")

    def is_default(self, value: object) -> bool:
        """Return whether a value, typed or as text, is the default with and without a GPU."""
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        return text == self.default and self.cpu_default in (None, self.default)

    def check(self, value: str) -> None:
        """Raise ValueError, with the parameter and its possible values, for a bad value."""
        if (mistake := self.find_mistake(value)) is not None:
            got = f"; got {mistake.got}" if mistake.got else ""
            raise ValueError(f"{self.name} {mistake.text}{got}")

    def find_mistake(self, value: str) -> Mistake | None:
        """Return what is wrong with a value; None where it is right."""
        if self.kind == "choice" and value not in self.choices:
            return Mistake(phrase("is one of {choices}", choices=joined(self.choices)), repr(value))
        if self.kind == "flag" and value not in ("yes", "no"):
            return Mistake(phrase("is yes or no"), repr(value))
        if self.kind in ("int", "float"):
            return self._find_wrong_number(value)
        return self._find_wrong_part(value) if self.kind in ("ints", "choices") else None

    def _find_wrong_number(self, value: str) -> Mistake | None:
        whole = self.kind != "float"
        try:
            number = int(value) if whole else float(value)
        except ValueError:
            kind = phrase("is a whole number") if whole else phrase("is a number")
            return Mistake(kind, repr(value))
        low, high = self.minimum, self.maximum
        if (low is None or number >= low) and (high is None or number <= high):
            return None
        assert low is not None and high is not None
        form = ".0f" if whole else "g"
        limits = {"low": Number(low, form), "high": Number(high, form)}
        if whole:
            return Mistake(phrase("is a whole number from {low} to {high}", **limits), value)
        return Mistake(phrase("is a number from {low} to {high}", **limits), value)

    def _find_wrong_part(self, value: str) -> Mistake | None:
        parts = split(value)
        if len(parts) > MOST_LISTED:
            return Mistake(phrase("takes up to {n} values", n=MOST_LISTED), str(len(parts)))
        for part in parts:
            if self.kind == "ints":
                if (mistake := self._find_wrong_number(part)) is not None:
                    return mistake
            elif part not in self.choices:
                text = phrase("takes any of {choices}", choices=joined(self.choices))
                return Mistake(text, repr(part))
        if twice := sorted({part for part in parts if parts.count(part) > 1}):
            return Mistake(phrase("names {values} twice", values=joined(twice)))
        return None


MOST_LISTED = 32
"""The most values that a list may have."""


def split(value: str) -> tuple[str, ...]:
    """Return the parts of a list that a user typed, such as "512, 1024,2048"."""
    return tuple(part.strip() for part in value.split(","))


def params_of(settings: type[msgspec.Struct]) -> tuple[Param, ...]:
    """Return a parameter for each field of a structure, by its annotations.

    `gpudeck.accel.training.settings` describes what they say.
    """
    hints = get_type_hints(settings, include_extras=True)
    return tuple(_param(f.name, f.default, *get_args(hints[f.name])) for f in fields(settings))


def _param(name: str, default: object, kind: type, meta: msgspec.Meta) -> Param:
    extra = meta.extra or {}
    kinds: dict[type, Literal["int", "float", "flag", "text"]] = {
        int: "int", float: "float", bool: "flag", str: "text",
    }  # fmt: skip
    given = {True: "yes", False: "no"}[default] if isinstance(default, bool) else f"{default}"
    return Param(
        name,
        meta.title or name,
        kinds.get(kind, "choice"),
        given,
        meta.description or "",
        get_args(kind),
        None if meta.ge is None else float(meta.ge),
        None if meta.le is None else float(meta.le),
        extra.get("cpu"),
        extra.get("group", "Run"),
        extra.get("auto", ""),
    )


class Workload(msgspec.Struct, frozen=True):
    """Describe a workload and the module that runs it."""

    name: str
    title: str
    summary: str
    module: str
    params: tuple[Param, ...]
    extras: tuple[str, ...] = ("compute",)
    """The parts of GPU Deck that it needs; see `gpudeck.extras`."""

    def used(self, values: Mapping[str, str]) -> tuple[Param, ...]:
        """Return the parameters that matter for the operation that `values` name."""
        operation = values.get("operation", "")
        return tuple(p for p in self.params if not p.operations or operation in p.operations)

    def telling(self, values: Mapping[str, object]) -> tuple[Param, ...]:
        """Return the parameters that describe what ran.

        Those that were chosen by themselves are left out and, where a workload has many, those of
        the group Run that have their defaults.
        """
        many = len(self.params) > _MANY
        return tuple(
            p
            for p in self.used({"operation": str(values.get("operation", "attention"))})
            if p.name in values
            and not p.is_automatic(values[p.name])
            and not (many and p.group == "Run" and p.is_default(values[p.name]))
        )

    def complete(self, given: Mapping[str, str], device_kind: str) -> dict[str, str]:
        """Return `given` completed by the defaults, and checked. Raises ValueError for bad
        values."""
        known = {p.name: p for p in self.params}
        for name in given:
            if name not in known:
                raise ValueError(
                    f"{self.name} has no parameter {name!r}. It has: {', '.join(known)}"
                )
        values = {name: given.get(name, p.default_for(device_kind)) for name, p in known.items()}
        for name, value in values.items():
            known[name].check(value)
        return values

    def job_name(self, values: Mapping[str, str]) -> str:
        """Return the name of a job that runs it, with the operation if that is not attention."""
        operation = values.get("operation", _OPERATIONS[0])
        return self.name if operation == _OPERATIONS[0] else f"{self.name} {operation}"

    def gpus(self, values: Mapping[str, str], device_kind: str) -> int:
        """Return how many GPUs a job with these values needs on devices of a kind."""
        return int(values.get("ranks", "1")) if device_kind == "nvidia" else 1

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the command that runs it, with this interpreter.

        Raises ValueError where a package is missing that it needs.
        """
        if missing := missing_of(*self.extras):
            raise ValueError(str(missing))
        # -P: a folder called `accel` in the job's working directory must not be imported instead.
        return [
            sys.executable,
            "-P",
            "-m",
            self.module,
            *(f"--{k.replace('_', '-')}={v}" for k, v in values.items()),
        ]

    def typed(self, argv: Sequence[str]) -> tuple[str, ...] | None:
        """Return the parameters of a command as `gpudeck run` takes them, such as `batch=1`.

        None for a command that `argv` does not make.
        """
        if self.module not in argv:
            return None
        words = [word.partition("=") for word in argv[argv.index(self.module) + 1 :]]
        values = {name[2:].replace("-", "_"): value for name, _, value in words}
        known = {f"--{param.name.replace('_', '-')}" for param in self.params}
        if not all(equals and name in known for name, equals, _ in words):
            return None
        used = {param.name: param for param in self.used(values)}
        return tuple(
            f"{name}={value}"
            for name, value in values.items()
            if name in used and not used[name].is_default(value)
        )


FP8 = ("fp8", "fp8-emulation")
"""Attention in E4M3 by the kernel, and by torch with the same roundings on any device. Neither runs
unless it is named."""
FP8_RECIPES = ("tensor", "row", "block")
PRODUCTS = ("auto", "cublas", "hopper", "triton", "torch")
"""The names of `accel.gemm`'s backends, for forms."""
RECIPES = ("plain", "delayed", "tensor", "row", "block")
"""What the workload `precision` computes: the layer as it is, and the recipes of FP8."""
LINEAR = ("auto", "triton", "torch")
"""The names of `accel.linear_attention`'s backends, for forms."""
KINDS = ("retention", "gla", "ssd", "gdn", "kda", "rwkv7")
"""The names of `accel.linear_attention`'s kinds, for forms."""

SEARCHED = (
    "softmax", "rms_norm", "layer_norm", "swiglu", "gelu", "row_sum", "cross_entropy",
)  # fmt: skip
"""The tasks of `accel.search` on rows that have a template."""
SEARCHED_OURS = (
    "attention", "attention_gradients", "decoding", "matmul", "retention", "rwkv7",
)  # fmt: skip
"""Those that kernels of ours compute, which `gpudeck search` takes, too."""

TOKENS = 16384
"""The tokens of all sequences together, from which the batch is computed if it is not given."""
WIDTH = 2048
"""Heads x head size, from which the heads are computed if they are not given, as in
FlashAttention-2 (arXiv 2307.08691), section 4.1."""

_DTYPES = ("bfloat16", "float16", "float32")
_PRODUCT_DTYPES = (*_DTYPES, *(f"fp8-{recipe}" for recipe in FP8_RECIPES))
_DTYPE = Param(
    "dtype",
    "Data type",
    "choice",
    "bfloat16",
    "data type of the inputs",
    _DTYPES,
    cpu_default="float32",
    group="Precision",
)
_DIRECTIONS = ("forward", "backward", "both")


def _seconds(what: str, default: str, cpu_default: str) -> Param:
    return Param(
        "seconds",
        "Seconds",
        "float",
        default,
        what,
        minimum=0.1,
        maximum=3600,
        cpu_default=cpu_default,
    )


def _size(name: str, label: str, default: str, what: str, cpu_default: str) -> Param:
    return Param(
        name,
        label,
        "int",
        default,
        what,
        minimum=1,
        maximum=1048576,
        cpu_default=cpu_default,
        group="Shape",
    )


def _shape(
    batch: str, heads: str, seq: str, head_dim: str, causal: str, *, cpu: tuple[str, str, str, str]
) -> tuple[Param, ...]:
    """Return the parameters that span a grid of attention problems.

    `cpu` has the defaults of batch, heads, seq and head_dim on a CPU.
    """
    many = "or several: 512,1024,2048"
    whole = partial(Param, kind="int", minimum=0, group="Shape")
    lists = partial(Param, kind="ints", minimum=1, group="Shape")
    return (
        whole(
            "batch",
            "Batch",
            default=batch,
            help="sequences in a batch",
            maximum=4096,
            cpu_default=cpu[0],
            auto=f"as many as make {TOKENS} tokens",
        ),
        whole(
            "heads",
            "Heads",
            default=heads,
            help="query heads",
            maximum=1024,
            cpu_default=cpu[1],
            auto=f"{WIDTH} / head size",
        ),
        whole(
            "kv_heads",
            "K/V heads",
            default=AUTO,
            help="heads of keys and values, fewer for grouped queries",
            maximum=1024,
            auto="as many as query heads",
        ),
        lists(
            "seq",
            "Sequence",
            default=seq,
            help=f"tokens in a sequence, {many}",
            maximum=1048576,
            cpu_default=cpu[2],
        ),
        lists(
            "head_dim",
            "Head size",
            default=head_dim,
            help="elements in a head, or several: 64,128",
            maximum=512,
            cpu_default=cpu[3],
        ),
        Param(
            "causal",
            "Causal",
            "choice",
            causal,
            "whether each token sees only those before it",
            ("no", "yes", "both"),
            group="Shape",
        ),
        _DTYPE,
    )


_LOWER = "fp8 is less exact, and never chosen by auto"


def _backends(default: str, choices: tuple[str, ...], cpu_default: str) -> Param:
    more = f"; {_LOWER}" if set(FP8) <= set(choices) else ""
    return Param(
        "backends",
        "Backends",
        "choices",
        default,
        f"what computes it; a backend that cannot do a shape says why{more}",
        choices,
        cpu_default=cpu_default,
    )


STRATEGIES = ("auto", "gather", "ulysses", "ring", "mesh", "hybrid")
"""The strategies of `accel.distributed`."""

_ANY = tuple(dict.fromkeys(("auto", *BACKENDS, *PRODUCTS, *LINEAR, *RECIPES, *FP8, *STRATEGIES)))
"""The names of contenders of every operation."""
_OPERATIONS = ("attention", "gemm", "precision", "linear_attention", "distributed")


def _operation(cpu_sizes: str) -> tuple[Param, ...]:
    """Return the parameters that choose another operation than attention, and its problems."""
    return (
        Param(
            "operation",
            "Operation",
            "choice",
            "attention",
            "what is computed",
            _OPERATIONS,
            group="Shape",
        ),
        Param(
            "sizes",
            "Sizes",
            "ints",
            "1024,4096,8192",
            "gemm: rows and columns; precision: features; linear_attention and distributed: tokens",
            minimum=16,
            maximum=65536,
            cpu_default=cpu_sizes,
            group="Shape",
            operations=_OPERATIONS[1:],
        ),
        Param(
            "kinds",
            "Kinds",
            "choices",
            "gdn",
            "which recurrences",
            KINDS,
            group="Shape",
            operations=("linear_attention",),
        ),
        Param(
            "dtypes",
            "Data types",
            "choices",
            "bfloat16",
            "data type of the inputs; fp8-: and what shares a scale",
            _PRODUCT_DTYPES,
            cpu_default="float32",
            group="Precision",
            operations=("gemm",),
        ),
    )


def _of_attention(*params: Param) -> tuple[Param, ...]:
    """Return parameters that the other operations do not take."""
    return tuple(msgspec.structs.replace(p, operations=_OPERATIONS[:1]) for p in params)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "attention",
        "Attention",
        "Scaled dot-product attention, one shape or a grid: checked against a float64 reference,"
        " then measured",
        "gpudeck.accel.workloads.attention",
        (
            *_shape("1", "16", "16384", "128", "no", cpu=("1", "4", "1024", "64")),
            Param(
                "direction", "Direction", "choice", "forward", "which passes are timed", _DIRECTIONS
            ),
            Param(
                "backend",
                "Backend",
                "choice",
                "auto",
                f"what computes it; {_LOWER}",
                ("auto", *BACKENDS, *FP8),
            ),
            _seconds("how long each shape is timed", "10", "4"),
        ),
    ),
    Workload(
        "compare",
        "Compare",
        "All backends of attention or another operation side by side, taking turns: which is"
        " fastest here, and is auto as fast?",
        "gpudeck.accel.workloads.compare",
        (
            *_operation("64,128"),
            *_of_attention(
                *_shape(
                    "0",
                    "0",
                    "512,2048,8192,16384",
                    "64,128,256",
                    "both",
                    cpu=("1", "4", "256,1024", "64"),
                ),
                Param(
                    "direction",
                    "Direction",
                    "choice",
                    "forward",
                    "which passes are timed",
                    _DIRECTIONS,
                ),
                _backends(
                    "auto,flash,cudnn,efficient,hopper,triton,turing,fa4,fa3",
                    ("auto", *BACKENDS, *FP8),
                    "auto,flash,math",
                ),
            ),
            _seconds("how long each backend and shape is timed", "1", "1"),
            *_of_attention(
                Param(
                    "power",
                    "Measure power",
                    "flag",
                    "no",
                    "also measure J per TFLOP, which takes 2 s more for each backend and shape",
                )
            ),
        ),
    ),
    Workload(
        "validate",
        "Validate",
        "Many trials with fresh random inputs, each checked against a float64 reference: errors,"
        " latencies and a verdict",
        "gpudeck.accel.workloads.validate",
        (
            *_operation("64"),
            *_of_attention(
                *_shape("2", "4", "512", "64,128", "both", cpu=("1", "2", "128", "64")),
                Param(
                    "direction",
                    "Direction",
                    "choice",
                    "both",
                    "which passes are checked; both: with the gradients",
                    ("forward", "both"),
                ),
            ),
            Param("backend", "Backend", "choice", "auto", "what computes it", _ANY),
            *_of_attention(
                Param(
                    "inputs",
                    "Inputs",
                    "choice",
                    "normal",
                    "how they are drawn; outliers: a thousandth of them 10 times as wide",
                    ("normal", "outliers"),
                    group="Precision",
                )
            ),
            Param(
                "trials",
                "Trials",
                "int",
                "1000",
                "trials of each shape",
                minimum=1,
                maximum=1000000,
                cpu_default="20",
            ),
            Param(
                "seed",
                "Seed",
                "int",
                "0",
                "seed of the first trial; each has the next",
                minimum=0,
                maximum=2**31,
            ),
        ),
    ),
    Workload(
        "tune",
        "Tune",
        "Measures every attention backend on this machine, forward and backward; auto then chooses"
        " by these measurements",
        "gpudeck.accel.workloads.tune",
        (
            *_shape(
                "0",
                "0",
                "512,1024,2048,4096,8192,16384",
                "64,128,256",
                "both",
                cpu=("1", "4", "128,512", "64"),
            ),
            _backends("flash,cudnn,efficient,hopper,triton,turing,fa4,fa3", BACKENDS, "flash,math"),
            _seconds("how long each backend and shape is timed", "0.5", "0.3"),
        ),
    ),
    Workload(
        "gemm",
        "Matrix product",
        "A square matrix product by cuBLAS or a kernel of ours: the rate the tensor cores can reach"
        " here",
        "gpudeck.accel.workloads.gemm",
        (
            Param(
                "size",
                "Size",
                "int",
                "8192",
                "rows and columns of the matrices",
                minimum=16,
                maximum=65536,
                cpu_default="1024",
                group="Shape",
            ),
            msgspec.structs.replace(
                _DTYPE,
                help="data type of the inputs; fp8-: and what shares a scale",
                choices=_PRODUCT_DTYPES,
            ),
            Param("backend", "Backend", "choice", "auto", "what computes it", PRODUCTS),
            _seconds("how long the timed loop runs", "10", "4"),
        ),
    ),
    Workload(
        "precision",
        "FP8 layer",
        "A linear layer in FP8, forward and backward with rounding, checked against float64",
        "gpudeck.accel.workloads.precision",
        (
            _size("rows", "Rows", "16384", "tokens of a batch", "64"),
            _size("inputs", "Inputs", "8192", "features of a token", "128"),
            _size("outputs", "Outputs", "8192", "features of the result", "128"),
            Param(
                "recipe",
                "Recipe",
                "choice",
                "row",
                "which values share a scale",
                RECIPES,
                group="Precision",
            ),
            _seconds("how long the timed loop runs", "10", "4"),
        ),
    ),
    Workload(
        "linear_attention",
        "Linear attention",
        "Attention whose memory is a matrix of fixed size, checked against its recurrence in"
        " float64",
        "gpudeck.accel.workloads.linear_attention",
        (
            Param("kind", "Kind", "choice", "gdn", "which recurrence", KINDS),
            Param("backend", "Backend", "choice", "auto", "what computes it", LINEAR),
            _size("batch", "Batch", "2", "sequences in a batch", "1"),
            _size("tokens", "Tokens", "16384", "tokens in a sequence", "256"),
            _size("heads", "Heads", "16", "heads of values", "2"),
            Param(
                "head_dim",
                "Head size",
                "int",
                "128",
                "elements in a head",
                minimum=1,
                maximum=256,
                cpu_default="32",
                group="Shape",
            ),
            _DTYPE,
            _seconds("how long the timed loop runs", "10", "4"),
        ),
    ),
    Workload(
        "distributed",
        "Distributed attention",
        "Attention whose sequence is divided among processes, one for each GPU, checked against one"
        " device and float64",
        "gpudeck.accel.workloads.distributed",
        (
            Param(
                "ranks",
                "Processes",
                "int",
                "2",
                "how many processes divide the sequence; on GPUs each has its own",
                minimum=1,
                maximum=512,
                group="Shape",
            ),
            _size("seq", "Sequence", "16384", "tokens of the whole sequence", "512"),
            _size("heads", "Heads", "32", "query heads", "4"),
            _size("key_heads", "Key heads", "8", "key and value heads", "2"),
            _size("head_dim", "Head size", "128", "elements in a head", "32"),
            Param(
                "causal",
                "Causal",
                "flag",
                "yes",
                "a token sees no later one",
                group="Shape",
            ),
            Param("strategy", "Strategy", "choice", "auto", "how the work is divided", STRATEGIES),
            _DTYPE,
            _seconds("how long the timed loop runs", "10", "2"),
        ),
    ),
    Workload(
        "search",
        "Kernel search",
        "Searches the fastest configuration of a kernel; the winner is checked at hidden sizes and"
        " timed beside the fastest alternative",
        "gpudeck.accel.workloads.search",
        (
            Param("task", "Task", "choice", "softmax", "what the kernel computes", SEARCHED),
            _size("rows", "Rows", "4096", "rows of the matrices", "512"),
            _size("columns", "Columns", "4096", "elements of a row", "1024"),
            _DTYPE,
            Param(
                "minutes",
                "Minutes",
                "float",
                "10",
                "how long is searched, earlier jobs with the same parameters included",
                minimum=0.01,
                maximum=1440,
                cpu_default="1",
            ),
            Param(
                "kwh",
                "Energy limit",
                "float",
                "0",
                "how much energy the search may take, where it can be measured; 0: any",
                minimum=0,
                maximum=1000,
            ),
            _seconds("how long the winner is timed", "8", "4"),
            Param(
                "compile",
                "torch.compile",
                "flag",
                "yes",
                "the winner is also timed beside what torch.compile makes",
                cpu_default="no",
            ),
            Param(
                "install",
                "Install the winner",
                "flag",
                "no",
                "use the winner if it is judged faster",
            ),
            Param(
                "endpoint",
                "Model's endpoint",
                "text",
                "",
                "the URL of a language model that also proposes configurations, such as that of"
                " gpudeck serve; empty: none",
            ),
            Param("model", "Model's name", "text", "", "the name of the model at the endpoint"),
        ),
        extras=("compute", "search"),
    ),
    Workload(
        "copy",
        "Memory copy",
        "A large copy within the device: the bandwidth its memory can reach here",
        "gpudeck.accel.workloads.copy",
        (
            Param(
                "mib",
                "MiB",
                "int",
                "2048",
                "size of the buffer",
                minimum=1,
                maximum=65536,
                cpu_default="256",
                group="Shape",
            ),
            _seconds("how long the timed loop runs", "10", "4"),
        ),
    ),
    Workload(
        "train",
        "Training",
        "A language model from text, new or trained further; an interrupted run continues"
        " where it was",
        "gpudeck.accel.workloads.train",
        params_of(TrainingSettings),
    ),
    Workload(
        "rain",
        "RAIN",
        "Texts about random machines by the assistant's model, rewound where they are wrong: how"
        " many are right, and how fast",
        "gpudeck.assistant.workloads.rain",
        (
            Param(
                "texts",
                "Texts",
                "int",
                "100",
                "how many texts are written",
                minimum=1,
                maximum=100000,
                cpu_default="10",
            ),
            Param(
                "method",
                "Method",
                "choice",
                "rain",
                "how they are written; greedy: once, without rewinding",
                ("rain", "greedy"),
            ),
            Param("seed", "Seed", "int", "0", "seed of the machines", minimum=0, maximum=2**31),
        ),
        ("compute", "assistant"),
    ),
)


def known(name: str | None) -> Workload | None:
    """Return a workload by its name; None for an unknown name."""
    return next((workload for workload in WORKLOADS if workload.name == name), None)


def find(name: str) -> Workload:
    """Return a workload by its name. Raises ValueError for an unknown name."""
    if (workload := known(name)) is None:
        raise ValueError(
            f"no workload is called {name!r}. There are: {', '.join(w.name for w in WORKLOADS)}"
        )
    return workload


def told(name: str, values: Mapping[str, object]) -> dict[str, Param | None]:
    """Return what describes a result among its values, by name; None for what is no parameter.

    Args:
        name: The workload, which may be none of ours.
        values: The parameters of the result.
    """
    if (workload := known(name)) is None:
        return dict.fromkeys(values)
    ours = {param.name for param in workload.params}
    telling = {param.name: param for param in workload.telling(values)}
    return {one: telling.get(one) for one in values if one in telling or one not in ours}
