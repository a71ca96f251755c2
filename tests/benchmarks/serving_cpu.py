"""Measure a small model on a CPU beside llama.cpp: CPU seconds of a request, in turns.

python -m tests.benchmarks.serving_cpu [--rounds N] [--out FOLDER]

Needs `pip install xllamacpp gguf`. Both compute SmolLM-135M's shape with random weights, with one
thread, in processes of their own: 32 tokens of a prompt and 128 of an answer. CPU seconds, because
others use the machine, too. Rows go to serving_cpu.csv.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.rows import RESULTS, context, spread, write

PROMPT, ANSWER = 32, 128
HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY = 576, 30, 9, 3, 1536, 49152


def save_gguf(file: Path, kind: str) -> None:
    """Write a model of SmolLM-135M's shape with random weights."""
    import gguf

    to = {"bf16": gguf.GGMLQuantizationType.BF16, "int8": gguf.GGMLQuantizationType.Q8_0}[kind]
    made, drawn = gguf.GGUFWriter(file, "llama"), np.random.default_rng(0)
    made.add_context_length(2048)
    made.add_embedding_length(HIDDEN)
    made.add_block_count(LAYERS)
    made.add_feed_forward_length(INNER)
    made.add_head_count(HEADS)
    made.add_head_count_kv(KV_HEADS)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_rope_freq_base(10000.0)
    made.add_rope_dimension_count(HIDDEN // HEADS)
    made.add_vocab_size(VOCABULARY)
    made.add_tokenizer_model("llama")
    made.add_token_list([f"<t{i}>".encode() for i in range(VOCABULARY)])
    made.add_token_scores([0.0] * VOCABULARY)
    made.add_token_types([1] * VOCABULARY)
    size = HIDDEN // HEADS
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm": (HIDDEN,), f"blk.{i}.ffn_norm": (HIDDEN,),
            f"blk.{i}.attn_q": (HIDDEN, HIDDEN), f"blk.{i}.attn_k": (KV_HEADS * size, HIDDEN),
            f"blk.{i}.attn_v": (KV_HEADS * size, HIDDEN), f"blk.{i}.attn_output": (HIDDEN, HIDDEN),
            f"blk.{i}.ffn_gate": (INNER, HIDDEN), f"blk.{i}.ffn_up": (INNER, HIDDEN),
            f"blk.{i}.ffn_down": (HIDDEN, INNER),
        }  # fmt: skip
    for name, shape in shapes.items():
        if len(shape) == 1:
            made.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
            continue
        weight = drawn.standard_normal(shape, dtype=np.float32) * 2 / shape[1] ** 0.5
        made.add_tensor(f"{name}.weight", gguf.quants.quantize(weight, to), raw_dtype=to)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def llama_cpp(kind: str) -> Any:
    """Return a function that answers a prompt by llama.cpp."""
    import xllamacpp

    file = Path(tempfile.mkdtemp()) / "model.gguf"
    save_gguf(file, kind)
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.n_parallel = str(file), 512, 1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(options)

    def answer(prompt: list[int]) -> None:
        asked = {"prompt": prompt, "n_predict": ANSWER, "temperature": 0, "ignore_eos": True}
        server.handle_completions(asked | {"cache_prompt": False})

    return answer


def ours(kind: str) -> Any:
    """Return a function that answers a prompt by our engine."""
    from gpudeck.accel.serving.request import Request
    from tests.benchmarks import serving

    torch.set_num_threads(1)
    bench = serving.Bench("cpu", Path(tempfile.mkdtemp()))
    engine = bench.engine("smollm-135m", {"bf16": "bfloat16", "int8": "int8"}[kind])

    def answer(prompt: list[int]) -> None:
        asked = Request(tuple(prompt), ANSWER, serving.GREEDY, ignore_end=True)
        (stream,) = serving.run(engine, asked)
        assert stream.ended.tokens == ANSWER

    return answer


def child(name: str, kind: str) -> None:
    """Answer a prompt for each line that comes in; write the CPU seconds of it."""
    answer = {"ours": ours, "llama.cpp": llama_cpp}[name](kind)
    for line in sys.stdin:
        prompt = np.random.default_rng(int(line)).integers(5, 500, PROMPT).tolist()
        began = time.process_time()
        answer(prompt)
        print(json.dumps({"seconds": time.process_time() - began}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6, help="the first does not count")
    parser.add_argument("--child", nargs=2, default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    name = next(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    known = context(name, ("torch", "numba", "xllamacpp"))
    rows = []
    for kind in ("bf16", "int8"):
        command = [sys.executable, "-m", "tests.benchmarks.serving_cpu", "--child"]
        running = {
            who: subprocess.Popen(
                [*command, who, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for who in ("ours", "llama.cpp")
        }
        taken: dict[str, list[float]] = {who: [] for who in running}
        for number in range(args.rounds):
            for who, process in running.items():
                assert process.stdin and process.stdout
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                for line in process.stdout:
                    if line.startswith('{"seconds"'):
                        taken[who].append(json.loads(line)["seconds"])
                        break
        for process in running.values():
            process.communicate()
        share = statistics.median(taken["llama.cpp"][1:]) / statistics.median(taken["ours"][1:])
        for who, found in taken.items():
            row = {"implementation": who, "weights": kind, "prompt": PROMPT, "answer": ANSWER}
            rows.append(
                {**row, **spread(found[1:]), "ours_beside_llama_cpp": f"{share:.3f}", **known}
            )
        print(f"{kind}: {share:.3f} of llama.cpp's speed; {taken}")
    write("serving_cpu", rows, args.out)


if __name__ == "__main__":
    main()
