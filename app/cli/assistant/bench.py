"""Measure a language model under rising load."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from gpudeck.app.cli import arguments
from gpudeck.app.cli.assistant.events import show_wait
from gpudeck.app.cli.output import clear_progress, print_json, print_line, print_table
from gpudeck.assistant.inference.engine_protocol import Options, Waiting
from gpudeck.assistant.library.served import require_served
from gpudeck.assistant.reports.files import write_private
from gpudeck.assistant.serve.load_test import Load, LoadResult, chart, measure


def add_arguments(parser: ArgumentParser) -> None:
    """Add what is measured, and how."""
    parser.add_argument("what", choices=("serve",), help="serve: a language model")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the model")
    parser.add_argument(
        "--streams",
        type=_counts,
        default=Load().streams,
        metavar="N,N,...",
        help="numbers of requests that are answered at the same time (default: 1,2,4,8,16)",
    )
    parser.add_argument(
        "--words",
        type=arguments.positive_count,
        default=Load().words,
        metavar="N",
        help="words of each prompt (default: 128)",
    )
    parser.add_argument(
        "--tokens",
        type=arguments.positive_count,
        default=Load().tokens,
        metavar="N",
        help="tokens of each answer (default: 64)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument(
        "--weights",
        choices=("auto", "bfloat16", "float32", "int8", "fp8", "int4"),
        default="auto",
        help="how weights are kept (default: auto, as they are stored)",
    )
    parser.add_argument(
        "--cache",
        choices=("auto", "fp8", "int8"),
        default="auto",
        help="format of keys and values (default: auto, as they are computed); for fp8 and int8, "
        "the error is measured on this model",
    )
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="also draw a chart")


def run(args: Namespace) -> None:
    """Measure, and print a table."""
    require_served(args.folder)
    folder = args.folder.expanduser().absolute()
    options = Options(str(folder), "cpu" if args.cpu else "auto", args.weights, args.cache)
    load = Load(args.streams, args.words, args.tokens)
    try:
        result = asyncio.run(measure(options, folder.name, load, _show))
    finally:
        clear_progress()
    if args.chart is not None:
        write_private(args.chart, chart(result).encode())
    if args.json:
        print_json(result)
    else:
        _print(result)


def _show(doing: Waiting) -> None:
    show_wait(doing.reason, doing.gpu)


def _print(result: LoadResult) -> None:
    load = result.load
    print_line(
        f"{result.model} on {result.device}, {result.weights}, loaded in {result.loaded_s:.1f} s; "
        f"prompts of {load.words} words, answers of {load.tokens} tokens"
    )
    if (error := result.cache_error) is not None:
        print_line(
            f"keys and values in {result.cache}: over {error.tokens} tokens, the probabilities of "
            f"the next one are {error.divergence:.2g} nats (Kullback-Leibler) from those with an "
            f"exact cache, and the likeliest is the same after {error.same}"
        )
    head = ("streams", "tokens/s", "TTFT P50", "P95", "P99", "TPOT P50", "P95", "P99 (ms)")
    rows: list[tuple[str, ...]] = [head]
    for each in result.measured:
        times = [f"{ms:.1f}" for ms in (*each.ttft, *each.tpot)]
        rows.append((str(each.streams), f"{each.throughput:.1f}", *times))
    print_table(rows, right=range(len(head)))


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(arguments.positive_count(part) for part in text.split(","))
    if max(counts) > 256 or list(counts) != sorted(counts):
        raise ArgumentTypeError(f"expected rising numbers up to 256; got {text!r}")
    return counts
