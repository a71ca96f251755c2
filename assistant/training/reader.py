"""Train the reader of requests: the encoder and its heads, on what people wrote.

    python -m gpudeck.assistant.training.reader ENCODER DATA... --out FOLDER

DATA are files of `requests` (see there); composed ones have the profile 1000. Whole profiles are
held out, never single requests. All layers learn, rounded as they ship. The reader that ships
learns from the labels and from what readers of other seeds, its teachers, say of each request.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from gpudeck.assistant.training.export import shipped
from gpudeck.assistant.training.reader_network import CLASSIFIERS, LAYERS, Reader
from gpudeck.assistant.training.reader_rows import NONE, Rows, batches, rows
from gpudeck.assistant.training.requests import Example, examples, is_held_out
from gpudeck.assistant.training.varied import names_of, varied

COMPOSED = 1000
"""The profile of composed requests."""
_TWICE_FROM, _COPIES = 206, 8
_BLANK = 3
"""The piece that stands for an unknown one."""


class Settings(NamedTuple):
    """Say how a reader is trained."""

    passes: int = 20
    """Passes over the requests of people."""
    rate: float = 7.5e-4
    """The highest learning rate, which is that of the last layer."""
    decay: float = 0.9
    """The learning rate of a layer, compared with the one above it."""
    fresh: float = 5.0
    """That of the heads, compared with the last layer."""
    composed: float = 0.3
    """Composed requests in a pass for each of people's."""
    blank: float = 0.05
    """The share of pieces that are made unknown, as a misspelt word is."""
    dropout: float = 0.1
    smoothing: float = 0.1
    marks: float = 40.0
    """The weight of the loss of the marks."""
    agreement: float = 1.0
    """The weight of the difference between two readings of a request (R-Drop, Liang 2021)."""
    taught: float = 0.8
    """The share of the loss beside what the teachers say, if there are any (Hinton 2015)."""
    batch: int = 256
    seed: int = 3


def loss_of(found: Mapping[str, Tensor], wanted: Rows, smoothing: float, marks: float) -> Tensor:
    """Return the sum of the losses of the heads that are among the logits."""
    loss = functional.cross_entropy(found["head"].float(), wanted.head, label_smoothing=smoothing)
    loss = loss + 0.3 * functional.cross_entropy(found["second"].float(), wanted.second)
    loss = loss + marks * functional.binary_cross_entropy_with_logits(
        found["mark"].float(), wanted.mark
    )
    asked = (wanted.page != NONE).sum().clamp(min=1)
    pages = functional.cross_entropy(found["page"].float(), wanted.page, reduction="sum")
    loss = loss + 0.3 * pages / asked
    loss = loss + 0.3 * functional.cross_entropy(found["language"].float(), wanted.language)
    if "tag" in found:
        tags = found["tag"].float().flatten(0, 1)
        loss = loss + functional.cross_entropy(tags, wanted.tag.flatten())
    return loss


def loss_beside(
    found: Mapping[str, Tensor], told: Mapping[str, Tensor], wanted: Rows, marks: float
) -> Tensor:
    """Return how far the logits of the heads are from the probabilities that teachers give.

    Args:
        found: The logits.
        told: The probabilities, of the same shapes.
        wanted: The rows, whose tags say which pieces are parts of the request.
        marks: The weight of the marks.
    """
    loss = marks * functional.binary_cross_entropy_with_logits(found["mark"].float(), told["mark"])
    for name, weight in (("head", 1.0), ("second", 0.3), ("page", 0.1), ("language", 0.3)):
        loss = loss + weight * _cross_entropy(found[name], told[name]).mean()
    inside = (wanted.tag >= 0).float()
    tags = _cross_entropy(found["tag"], told["tag"])
    return loss + (tags * inside).sum() / inside.sum().clamp(min=1)


def _cross_entropy(logits: Tensor, told: Tensor) -> Tensor:
    return -(told * logits.float().log_softmax(-1)).sum(-1)


@torch.no_grad()
def probabilities(teachers: Sequence[Reader], batch: Rows) -> dict[str, Tensor]:
    """Return the mean of the probabilities that readers give to a batch, by the names of heads."""
    each = [teacher(batch.ids, batch.mask()) for teacher in teachers]
    return {
        name: torch.stack([
            logits[name].float().sigmoid() if name == "mark" else logits[name].float().softmax(-1)
            for logits in each
        ]).mean(0)
        for name in each[0]
    }  # fmt: skip


def difference(found: Mapping[str, Tensor], wanted: Rows, marks: float) -> Tensor:
    """Return how much the logits of the first half of a batch differ from those of the second.

    It is the mean of both divergences of Kullback and Leibler, of the heads, marks and tags.
    """
    apart = torch.zeros((), device=wanted.ids.device)
    for name, weight in (("head", 1.0), ("second", 0.3)):
        apart = apart + weight * _divergence(found[name].float().log_softmax(-1)).mean()
    mark = found["mark"].float()
    both = torch.stack((functional.logsigmoid(mark), functional.logsigmoid(-mark)), -1)
    apart = apart + marks * _divergence(both).mean()
    inside = (wanted.tag >= 0).float().chunk(2)[0]
    tags = _divergence(found["tag"].float().log_softmax(-1))
    return apart + (tags * inside).sum() / inside.sum().clamp(min=1)


def _divergence(logs: Tensor) -> Tensor:
    first, second = logs.chunk(2)
    return ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2


def fit_heads(model: Reader, found: Rows, steps: int = 300) -> None:
    """Fit the heads on the encoder as it is, so that their errors do not destroy it."""
    model.eval()
    with torch.no_grad():
        whole = torch.cat([model.encode(one.ids, one.mask())[1] for one in found.parts(256)])
    model.mean.copy_(whole.mean(0))
    model.spread.copy_(whole.std(0) + 1e-6)
    heads = [getattr(model, name) for name in CLASSIFIERS]
    for head in heads:
        head.weight.data.zero_()
        head.bias.data.zero_()
    optimiser = torch.optim.AdamW([p for head in heads for p in head.parameters()], 3e-3,
                                  weight_decay=0.1)  # fmt: skip
    for _ in range(steps):
        loss = loss_of(model.classify(whole), found, 0.0, 20.0)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


class Step:
    """One step of training. On a GPU it is recorded once for each width, and then replayed.

    A step starts some thousand small kernels; started one by one they take 75 ms on an H100.
    """

    def __init__(self, model: Reader, settings: Settings, teachers: Sequence[Reader] = ()) -> None:
        self.model, self.settings, self.teachers = model, settings, teachers
        self.device = model.word.device
        on_gpu = self.device.type == "cuda"
        self.optimiser = torch.optim.AdamW(_groups(model, settings, self.device), 0.0,
                                           weight_decay=0.01, betas=(0.9, 0.98), fused=on_gpu,
                                           capturable=on_gpu)  # fmt: skip
        self._recorded: dict[int, tuple[Rows, torch.cuda.CUDAGraph, Tensor]] = {}

    def take(self, batch: Rows, share: float) -> Tensor:
        """Train on a batch, and return its loss.

        Args:
            batch: The rows, of a size that is always the same.
            share: The learning rate as a share of the highest one.
        """
        for group in self.optimiser.param_groups:
            group["lr"].fill_(self.settings.rate * group["times"] * share)
        if self.device.type != "cuda":
            return self._run(batch)
        width = batch.ids.shape[1]
        if width not in self._recorded:
            self._recorded[width] = self._record(batch)
        held, graph, loss = self._recorded[width]
        for into, one in zip(held, batch, strict=True):
            into.copy_(one)
        graph.replay()
        return loss

    def _record(self, batch: Rows) -> tuple[Rows, torch.cuda.CUDAGraph, Tensor]:
        held = Rows(*(one.clone() for one in batch))
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # Libraries allocate what they need before the recording.
            for _ in range(3):
                self._run(held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = self._run(held)
        return held, graph, loss

    def _run(self, batch: Rows) -> Tensor:
        settings, once = self.settings, batch
        batch = Rows(*(torch.cat((one, one)) for one in batch))
        ids = _blanked(batch, settings.blank)
        with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
            logits = self.model(ids, batch.mask())
            told = probabilities(self.teachers, once) if self.teachers else {}
        loss = loss_of(logits, batch, settings.smoothing, settings.marks)
        if told:
            twice = {name: torch.cat((one, one)) for name, one in told.items()}
            beside = loss_beside(logits, twice, batch, settings.marks)
            loss = (1 - settings.taught) * loss + settings.taught * beside
        loss = loss + settings.agreement * difference(logits, batch, settings.marks)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return loss.detach()


def train(
    model: Reader,
    people: Sequence[Rows],
    composed: Rows,
    settings: Settings,
    after_pass: Callable[[int], None] = lambda _: None,
    teachers: Sequence[Reader] = (),
) -> None:
    """Train a reader.

    Args:
        model: The reader, on the device of the rows.
        people: The requests of people, and varied copies of them, which the passes take by turns.
        composed: Composed requests, of which each pass draws others.
        settings: How.
        after_pass: It is called with the number of each pass that has ended.
        teachers: Trained readers, whose probabilities it learns, too.
    """
    torch.manual_seed(settings.seed)
    _set_dropout(model, settings.dropout)
    model.train()
    step = Step(model, settings, teachers)
    more = min(len(composed.ids), int(len(people[0].ids) * settings.composed))
    for number in range(settings.passes):
        drawn = torch.randperm(len(composed.ids))[:more].to(composed.ids.device)
        copy = people[number % len(people)]
        mixed = Rows(*map(torch.cat, zip(copy, Rows(*(one[drawn] for one in composed)),
                                         strict=True)))  # fmt: skip
        todo = list(batches(mixed, settings.batch, settings.seed * 1000 + number))
        for i, batch in enumerate(todo):
            done = (number + i / len(todo)) / settings.passes
            step.take(batch, min(done / 0.06 + 0.02, 1 - done))
        after_pass(number + 1)
        model.train()


def copies(people: Sequence[Example]) -> Iterator[list[Example]]:
    """Yield the requests of people, and varied ones; those of the newest profiles come twice."""
    names = names_of(people)
    twice = [*people, *(one for one in people if one.profile >= _TWICE_FROM)]
    yield twice
    for seed in range(1, _COPIES):
        random = Random(seed)
        yield [varied(one, random, names) for one in twice]


def _groups(model: Reader, settings: Settings, device: torch.device) -> list[dict[str, object]]:
    parts = [(getattr(model, name), settings.fresh) for name in (*CLASSIFIERS, "tag")]
    parts += [(layer, settings.decay ** (LAYERS - 1 - i)) for i, layer in enumerate(model.layers)]
    return [{"params": list(part.parameters()), "times": times,
             "lr": torch.zeros((), device=device)} for part, times in parts]  # fmt: skip


def _set_dropout(model: Reader, share: float) -> None:
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = share


def _blanked(batch: Rows, share: float) -> Tensor:
    """Return the pieces of a batch, some of them unknown, but for those of spans and marks."""
    hidden = (batch.tag == 0) & (torch.rand(batch.ids.shape, device=batch.ids.device) < share)
    return batch.ids.masked_fill(hidden, _BLANK)


@torch.no_grad()
def judge(model: Reader, found: Rows) -> dict[str, float]:
    """Return the shares that are right on rows that were held out.

    `head` is the kind, `top 3` whether it is among the first three, `marks` all marks and no
    others, `tags` all letters of spans, `all` these together, and `language` the language.
    """
    model.eval()
    right: dict[str, float] = {}
    for wanted in found.parts(256):
        logits = model(wanted.ids, wanted.mask())
        best = logits["head"].topk(3).indices == wanted.head[:, None]
        mark = ((logits["mark"] > 0) == (wanted.mark > 0)).all(-1)
        tag = ((logits["tag"].argmax(-1) == wanted.tag) | (wanted.tag < 0)).all(-1)
        said = {"head": best[:, 0], "top 3": best.any(-1), "marks": mark, "tags": tag,
                "all": best[:, 0] & mark & tag,
                "language": logits["language"].argmax(-1) == wanted.language}  # fmt: skip
        for name, one in said.items():
            right[name] = right.get(name, 0.0) + float(one.sum())
    return {name: round(value / len(found.ids), 4) for name, value in right.items()}


def main() -> None:
    """Train a reader, judge it after each pass, and write it in the form that ships."""
    parser = argparse.ArgumentParser(description="Train the reader of requests.")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--teachers", type=int, default=2, help="readers that are trained before")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device = torch.device(args.device)
    tokenizer = Tokenizer.from_file(str(args.encoder / "tokenizer.json"))
    found = [one for file in args.data for one in examples(file)]
    held = [one for one in found if is_held_out(one.profile)]
    people = [one for one in found if not is_held_out(one.profile) and one.profile != COMPOSED]
    composed = [one for one in found if one.profile == COMPOSED]
    learnt = [rows(part, tokenizer).to(device) for part in copies(people)]
    filling, judged = (rows(part, tokenizer).to(device) for part in (composed, held))

    def trained(seed: int, teachers: Sequence[Reader]) -> Reader:
        model = Reader(load_file(args.encoder / "encoder.safetensors")).to(device)
        fit_heads(model, learnt[0])

        def report(number: int) -> None:
            print(seed, number, json.dumps(judge(model, judged)), flush=True)

        train(model, learnt, filling, Settings(seed=seed), report, teachers)
        return model.eval().requires_grad_(requires_grad=False)

    teachers = [trained(Settings().seed + 1 + number, ()) for number in range(args.teachers)]
    model = trained(Settings().seed, teachers)
    save_file(shipped(model.state_dict()), args.out / "reader.safetensors")


if __name__ == "__main__":
    main()
