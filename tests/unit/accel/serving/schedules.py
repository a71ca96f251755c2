"""Random schedules of requests, whose answers are compared with those computed alone.

Whatever happens to a request (others in its batch, its prompt cut into chunks, blocks shared with
others, evicted or swapped, proposals right and wrong, a reader that pauses, a step that crashes),
its tokens must be, bit for bit, those of the same request in an engine of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import Tokenizer as Vocabulary
from gpudeck.accel.serving import request as requests
from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.draft import DraftModel
from gpudeck.accel.serving.engine import Engine
from gpudeck.accel.serving.recurrent import RecurrentModel, StateCache
from gpudeck.accel.serving.request import Ended, Piece, Request, Sampling
from gpudeck.accel.serving.speculation import PromptLookup
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.transformer import load
from gpudeck.accel.serving.world import WorldTokenizer
from tests.unit.accel.rwkv.rwkv_models import random_model

SIZE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 300, "max_position_embeddings": 256,
    "tie_word_embeddings": True, "rope_theta": 10000.0,
}  # fmt: skip


class Guess:
    """Propose what another answer to the same prompt said, which is often right, or at random."""

    def __init__(self, draw: random.Random, alone: dict[Request, list[tuple[int, float]]]) -> None:
        self._draw = draw
        self._texts = [[*r.prompt, *(token for token, _ in found)] for r, found in alone.items()]

    def begin(self, request):
        return self

    def end(self):
        pass

    def propose(self, tokens, most):
        for text in self._texts:
            if text[: len(tokens)] == tokens:
                return text[len(tokens) : len(tokens) + most]
        return [self._draw.choice(tokens) for _ in range(self._draw.randrange(most + 1))]


class Crash(RuntimeError):
    """Stand for whatever may go wrong in a step."""


class Schedules:
    """Run schedules with one tiny model, and count what happened in them."""

    def __init__(self, folder: Path) -> None:
        tiny.SHAPES["schedule"] = SIZE
        try:
            tiny.make(folder, "schedule")
        finally:
            del tiny.SHAPES["schedule"]
        self.model, self.tokenizer = load(folder), Tokenizer.load(folder)
        self.happened: Counter[str] = Counter()
        self._alone: dict[Request, list[tuple[int, float]]] = {}

    def engine(self, blocks: int, **options) -> Engine:
        cache = PagedCache(self.model.config, blocks, self.model.device, torch.float32)
        return Engine(self.model, self.tokenizer, None, cache, **options)

    def _draft(self, blocks: int) -> DraftModel:
        """Return the model itself as its own draft, with a cache that may be too small."""
        cache = PagedCache(self.model.config, blocks, self.model.device, torch.float32)
        return DraftModel(self.model, cache, self.model.config.vocabulary)

    def alone(self, request: Request) -> list[tuple[int, float]]:
        """Return the tokens and logprobs of a request in an engine of its own."""
        if request not in self._alone:
            requests.MOST_UNREAD = 10**9
            engine = self.engine(16, step_tokens=256)
            stream = engine.submit(request)
            while engine.step():
                pass
            self._alone[request] = answer(stream)[0]
        return self._alone[request]

    def run(self, seed: int) -> None:
        """Run one schedule, and compare every answer."""
        draw = random.Random(seed)
        speculator = draw.choice(
            [None, PromptLookup(3, 1), Guess(draw, self._alone), self._draft(draw.randrange(16))]
        )
        engine = self.engine(
            draw.randrange(7, 24), host_blocks=draw.choice([0, 0, 2, 8]),
            step_tokens=draw.randrange(1, 60), most_running=draw.randrange(1, 6),
            speculator=speculator, most_drafts=draw.randrange(1, 5),
        )  # fmt: skip
        crashing = draw.random() < 0.2
        run = engine.runner.run

        def perhaps(work):
            if crashing and draw.random() < 0.04:
                raise Crash
            scores = run(work)
            if crashing and draw.random() < 0.04:
                raise Crash
            return scores

        engine.runner.run = perhaps
        left = [make_request(draw) for _ in range(draw.randrange(2, 8))]
        streams = []
        pauses = draw.random() < 0.3
        requests.MOST_UNREAD = 3 if pauses else 10**9
        taken: dict[int, list] = {}
        for _step in range(2000):
            if left and draw.random() < 0.4:
                request = left.pop()
                streams.append((request, engine.submit(request)))
            if streams and draw.random() < 0.02:
                draw.choice(streams)[1].cancel()
            try:
                worked = engine.step()
            except Crash:
                worked = True
            for number, (_, stream) in enumerate(streams):
                while (not pauses or draw.random() < 0.5) and (event := stream.take()):
                    taken.setdefault(number, []).append(event)
            if not worked and not left and all(s.ended for _, s in streams):
                break
        else:
            raise AssertionError(f"schedule {seed} never ends")
        for number, (request, stream) in enumerate(streams):
            tokens, ended = answer(stream, taken.get(number, []))
            wanted = self.alone(request)
            assert tokens == wanted[: len(tokens)], f"schedule {seed}: another answer"
            assert ended.reason in ("cancelled", "error") or len(tokens) == len(wanted), seed
            self.happened[ended.reason] += 1
            self.happened["prefix hits"] += ended.cached_tokens > 0
            self.happened["accepted"] += ended.accepted
        self._check(engine)

    def _check(self, engine: Engine) -> None:
        """Check that nothing is used any more, and that every block is known."""
        pool = engine.pool
        assert pool.free + pool.in_tree == pool.total and pool.idle == pool.in_tree
        if isinstance(speculator := engine.scheduler._speculator, DraftModel):
            assert sorted(speculator.free) == list(range(len(speculator.free)))
        nodes = list(pool.nodes())
        assert all(node.users == 0 for node in nodes)
        assert sum(node.block is not None for node in nodes) == pool.in_tree
        assert sum(node.host is not None for node in nodes) == pool.on_host
        blocks = [node.block for node in nodes if node.block is not None] + pool._free
        assert sorted(blocks) == list(range(pool.total))
        self.happened["preemptions"] += engine.scheduler.preemptions
        self.happened["evictions"] += pool.evictions
        self.happened["swaps"] += pool.swaps


class RecurrentSchedules(Schedules):
    """Run schedules with one tiny RWKV-7 model, whose spans of a prompt are 16 tokens."""

    def __init__(self) -> None:
        network = RWKV7(random_model(layers=2, channels=64, vocabulary=300))
        self.model = RecurrentModel(network)
        self.tokenizer = WorldTokenizer(Vocabulary({n + 1: bytes([n]) for n in range(256)}))
        self.happened: Counter[str] = Counter()
        self._alone: dict[Request, list[tuple[int, float]]] = {}

    def engine(self, blocks: int, *, step_tokens: int, most_running: int = 64, **_) -> Engine:
        cache = StateCache(self.model.network, max(1, blocks // 4))
        cache.span = 16
        return Engine(
            self.model, self.tokenizer, None, cache, step_tokens=max(step_tokens, 24),
            most_running=most_running,
        )  # fmt: skip

    def _draft(self, blocks: int) -> None:
        """Return None: nothing is proposed."""

    def _check(self, engine: Engine) -> None:
        """Check that nothing is used any more, and that every slot is known."""
        pool = engine.pool
        assert all(isinstance(key, bytes) for key in pool._kept), "a text has left its state"
        assert sorted([*pool._free, *pool._kept.values()]) == list(range(pool.total))
        self.happened["preemptions"] += engine.scheduler.preemptions
        self.happened["evictions"] += pool.evictions


def make_request(draw: random.Random) -> Request:
    """Return one of some hundred requests, many of which begin alike."""
    kind = random.Random(draw.randrange(300))
    common = random.Random(kind.randrange(3)).choices(range(3, 300), k=70)
    own = [kind.randrange(3, 300) for _ in range(kind.randrange(1, 12))]
    prompt = common[: kind.randrange(0, 70)] + own
    sampling = kind.choice(
        [
            Sampling(temperature=0.0),
            Sampling(temperature=0.9, seed=kind.randrange(9)),
            Sampling(temperature=1.0, seed=kind.randrange(9), top_k=5, min_p=0.01),
            Sampling(temperature=1.2, seed=kind.randrange(9), top_p=0.8, frequency=0.5),
            Sampling(temperature=0.0, repetition=1.3, presence=0.2),
        ]
    )
    return Request(
        tuple(prompt), kind.randrange(1, 24), replace(sampling, logprobs=0),
        priority=kind.randrange(2), client=kind.choice("ab"),
    )  # fmt: skip


def answer(stream, events=()):
    """Return the tokens of an answer with their logprobs, and how it ended."""
    events = list(events)
    while (event := stream.take()) is not None:
        events.append(event)
    assert isinstance(events[-1], Ended)
    choices = [c for event in events if isinstance(event, Piece) for c in event.choices]
    return [(choice.token, choice.logprob) for choice in choices], events[-1]
