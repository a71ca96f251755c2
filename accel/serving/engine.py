"""Serve requests: one step after another, each with tokens of many requests.

engine = Engine.load(Path("models/tiny"))
with engine.running():
    print(engine.submit(engine.request("The queue")).text())
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import Tokenizer as World
from gpudeck.accel.serving.batch import FEW_QUERIES
from gpudeck.accel.serving.blocks import BlockPool, BlockStore
from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.draft import DraftModel
from gpudeck.accel.serving.errors import NOT_FINITE, ModelRefused, RequestRefused, TooLong
from gpudeck.accel.serving.families import is_recurrent, read_config
from gpudeck.accel.serving.folder_template import load_template
from gpudeck.accel.serving.grammar import Grammars
from gpudeck.accel.serving.memory import CacheFormat, Weights, footprint, free_host_bytes
from gpudeck.accel.serving.recurrent import (
    RecurrentModel,
    RecurrentRunner,
    load_recurrent,
    plan_states,
)
from gpudeck.accel.serving.request import Request, Sampling, Stream
from gpudeck.accel.serving.runner import Runner
from gpudeck.accel.serving.sampler import Scores, choose
from gpudeck.accel.serving.scheduler import Pool, Scheduler, Work
from gpudeck.accel.serving.sequence import Reason, Sequence, Storage
from gpudeck.accel.serving.speculation import PromptLookup, Speculator
from gpudeck.accel.serving.states import StateCache, StatePool, StateStorage
from gpudeck.accel.serving.storage import PagedStorage
from gpudeck.accel.serving.template import Template
from gpudeck.accel.serving.tokens import Tokenizer
from gpudeck.accel.serving.transformer import Transformer, load
from gpudeck.accel.serving.world import STOP, Vocabulary, WorldTokenizer, world_template
from gpudeck.language.text import phrase

MOST_WAITING = 1024
_LOG = logging.getLogger("serving")
_STEP_TOKENS = {"cpu": 64, "cuda": 2048}
_STATE_STEP_TOKENS = {"cpu": 128, "cuda": 2048}
"""For states: beside 64 answers there is room for a span of a prompt."""
_DRAFTS = {"cpu": 3, "cuda": FEW_QUERIES - 1}
"""Proposals that one step checks. On a CPU, each costs much of what a token alone does; on a GPU, a
captured step takes them with the token before them."""
_DRAFT_CACHE = 16384
"""Tokens of all texts that a draft model remembers; beyond that it proposes nothing."""
_LONG_PROMPT = 512
"""Tokens of a prompt whose blocks are kept in the store."""
_RATE_S = 2.0
"""The time that a rate of tokens is averaged over."""


@dataclass(frozen=True)
class Statistics:
    """Say what the engine does now."""

    running: int
    waiting: int
    blocks: int
    """Of the cache, each of BLOCK tokens."""
    used_blocks: int
    """Blocks that requests use."""
    known_blocks: int
    """Blocks that none uses, kept for prompts that begin alike."""
    host_blocks: int
    """Blocks in the host's memory."""
    tokens_per_second: float
    """Of answers, over the last seconds."""
    prompt_tokens: int
    cached_tokens: int
    """Tokens of prompts since the start, and those of them that were in the cache."""
    proposed: int
    accepted: int
    """Tokens that speculation proposed since the start, and those that were right."""
    preemptions: int
    evictions: int
    swaps: int


class Engine:
    """Hold a model, its cache, and the requests.

    `submit` may be called from any thread. One thread calls `step`, or `running` starts one.
    """

    def __init__(
        self,
        model: Transformer | RecurrentModel,
        tokenizer: Vocabulary,
        template: Template | None,
        cache: PagedCache | StateCache,
        *,
        host_blocks: int = 0,
        store: BlockStore | None = None,
        step_tokens: int = 0,
        most_running: int = 64,
        speculator: Speculator | None = None,
        most_drafts: int = 0,
        chat_stops: tuple[str, ...] = (),
    ) -> None:
        """Take a loaded model and a cache of its kind; see `load` for the rest.

        An answer in a chat ends before the first of `chat_stops`.
        """
        self.model, self.tokenizer, self.template, self.cache = model, tokenizer, template, cache
        self.chat_stops = chat_stops
        self.pool: Pool
        self._new_storage: Callable[[Request], Storage]
        self.runner: Runner | RecurrentRunner
        if isinstance(model, RecurrentModel):
            assert isinstance(cache, StateCache), "RWKV-7 has states"
            states = self.pool = StatePool(cache)
            self._new_storage = lambda request: StateStorage(
                states, request.prompt, request.written
            )
            self.runner = RecurrentRunner(model.network, cache, self._check)
        else:
            assert isinstance(cache, PagedCache), "a transformer has keys and values"
            blocks = self.pool = BlockPool(cache, host_blocks, store)
            self._new_storage = lambda _: PagedStorage(blocks)
            self.runner = Runner(model, cache)
        default = _STATE_STEP_TOKENS if isinstance(cache, StateCache) else _STEP_TOKENS
        tokens = step_tokens or default[model.device.type]
        drafts = most_drafts or _DRAFTS[model.device.type]
        self.scheduler = Scheduler(self.pool, tokens, most_running, speculator, drafts)
        self._grammars = Grammars(tokenizer, model.config.vocabulary, model.config.ends)
        self._new: list[Sequence] = []
        self._lock = threading.Condition()
        self._arrivals = 0
        self._closed = ""
        self._part: Items[Work[Sequence]] = ()
        """What is computed now."""
        self._prompted = self._cached = self._proposed = self._accepted = 0
        self._written: list[tuple[float, int]] = []

    @classmethod
    def load(
        cls,
        folder: Path,
        device: str = "cpu",
        weights: Weights = "auto",
        *,
        cache: CacheFormat = "auto",
        cache_tokens: int = 0,
        host_bytes: int = 0,
        store: BlockStore | None = None,
        lookup: bool = True,
        draft: Path | None = None,
        most_running: int = 64,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Engine:
        """Load the model in a folder, after finding that it fits.

        Args:
            folder: With config.json, .safetensors and tokenizer.json.
            device: `cpu` or `cuda`.
            weights: How matrices are kept.
            cache: How keys and values are kept.
            cache_tokens: Tokens that the cache holds; 0: as many as fit.
            host_bytes: Memory of the host for what is evicted from the cache.
            store: Keeps the cache of long prompts.
            lookup: Speculate by looking up the last tokens in the prompt.
            draft: Folder of a smaller model of the same tokenizer to speculate by, in its place.
            most_running: The most requests of a step.
            progress: Is called with the bytes of weights that were read so far.

        Raises:
            ModelRefused: The model cannot be served, or does not fit.
        """
        if is_recurrent(folder):
            if draft is not None or cache != "auto":
                raise ModelRefused(
                    phrase(
                        "RWKV-7 has a state in place of keys and values: it is served without a"
                        " draft model and without a format of the cache"
                    )
                )
            return cls._load_recurrent(folder, device, weights, most_running)
        free = _free_bytes(device)
        tokenizer, template = Tokenizer.load(folder), load_template(folder)
        drafts = _draft(draft, device, free, folder, tokenizer) if draft is not None else None
        if drafts is not None:
            free -= drafts[1]
        room = footprint(folder).plan(device, free, weights, cache, cache_tokens)
        model = load(folder, device, weights, progress)
        blocks = PagedCache(model.config, room.blocks, model.device, model.dtype, cache)
        return cls(
            model, tokenizer, template, blocks,
            host_blocks=host_bytes // room.block_bytes,
            store=store,
            most_running=most_running,
            speculator=drafts[0] if drafts else PromptLookup() if lookup else None,
        )  # fmt: skip

    @classmethod
    def _load_recurrent(
        cls, folder: Path, device: str, weights: Weights, most_running: int
    ) -> Engine:
        """Load RWKV-7; nothing is proposed, as a state cannot be taken back by a few tokens."""
        template, tokenizer = load_template(folder), WorldTokenizer.load(folder)
        network = load_recurrent(folder, device, weights, _free_bytes(device)).network
        return cls.of_network(network, tokenizer.vocabulary, most_running, template=template)

    @classmethod
    def of_network(
        cls,
        network: RWKV7,
        vocabulary: World,
        most_running: int = 64,
        most_states: int = 256,
        template: Template | None = None,
    ) -> Engine:
        """Serve a loaded RWKV-7.

        Args:
            network: The model.
            vocabulary: Its tokens.
            most_running: The most requests of a step.
            most_states: The most states that are kept, for running requests and others.
            template: The form of chats; None: that of RWKV's World models.

        Raises:
            ModelRefused: Its states do not fit.
        """
        model = RecurrentModel(network)
        slots = min(most_states, plan_states(model, _free_bytes(network.device.type), most_running))
        return cls(
            model, WorldTokenizer(vocabulary), template or world_template(),
            StateCache(network, slots),
            most_running=most_running, chat_stops=() if template else (STOP,),
        )  # fmt: skip

    @property
    def context(self) -> int:
        """Return the most tokens of a prompt and its answer."""
        return min(self.model.config.context, self.pool.most_tokens)

    @property
    def cache_tokens(self) -> int:
        """Return the tokens that the cache holds; 0 for states, which hold any number."""
        return 0 if isinstance(self.cache, StateCache) else self.pool.most_tokens

    def request(
        self, text: str, limit: int = 128, sampling: Sampling | None = None, *, special: bool = True
    ) -> Request:
        """Return a request that continues a text. Raises RequestRefused if it is too long."""
        prompt = self.tokenizer.encode(text, self.context - 1, special=special)
        return Request(tuple(prompt), limit, sampling or Sampling(temperature=0))

    def submit(self, request: Request, stream: Stream | None = None) -> Stream:
        """Add a request, and return the stream of its answer.

        Raises:
            RequestRefused: It cannot be served.
        """
        config, prompt = self.model.config, request.prompt
        if not prompt or not 0 <= min(prompt) <= max(prompt) < config.vocabulary:
            raise RequestRefused(f"a prompt has tokens from 0 to {config.vocabulary - 1}")
        if request.limit < 1 or len(prompt) - request.begun + request.limit > self.context:
            raise TooLong(
                f"the prompt has {len(prompt)} tokens, and {request.limit} are asked for; "
                f"together at most {self.context} fit"
            )
        matcher = self._grammars.matcher(request.grammar) if request.grammar else None
        stream = stream or Stream()
        with self._lock:
            if self._closed:
                raise RequestRefused(self._closed)
            if len(self._new) + len(self.scheduler.waiting) >= MOST_WAITING:
                raise RequestRefused(f"{MOST_WAITING} requests wait already. Try again later")
            self._arrivals += 1
            sequence = Sequence(
                request, stream, self.tokenizer, config.ends, matcher, self._arrivals,
                self._new_storage(request),
            )  # fmt: skip
            self._new.append(sequence)
            self._lock.notify()
        return stream

    def step(self) -> bool:
        """Compute one step; return False if there was nothing to do.

        Raises what the model raises; its requests have ended with an error then, and all others
        go on.
        """
        self._receive()
        self.pool.save_some()
        work = self.scheduler.plan()
        if not work:
            return self.pool.save_some(1, wait=True)
        for part in [work] if self.runner.together else [[item] for item in work]:
            self._part = part
            try:
                self._check()
                self._advance(part, self.runner.run(part))
            except _Overtaken:
                break
            except Exception as e:
                for item in part:
                    if item.sequence.stream.ended is None:
                        self._end(item.sequence, "error", f"the model failed: {e!s:.200}")
                raise
        return True

    def _check(self) -> None:
        """Raise _Overtaken if something more important came, or somebody left."""
        priority = self._part[0].sequence.request.priority
        if self.scheduler.reserved and priority > 0:
            raise _Overtaken
        if any(new.request.priority < priority for new in list(self._new)) or any(
            item.sequence.stream.cancelled for item in self._part
        ):
            raise _Overtaken

    def close(self, reason: str = "the engine has ended") -> None:
        """End all requests, and refuse new ones."""
        with self._lock:
            self._closed = reason
        self._receive()
        for sequence in [*self.scheduler.running, *self.scheduler.waiting]:
            self._end(sequence, "error", reason)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Step in a thread of its own until the end of the `with`, which ends all requests."""
        stopping = threading.Event()
        thread = threading.Thread(target=self._run, args=(stopping,), name="serving")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            with self._lock:
                self._lock.notify()
            thread.join()

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Pause requests of a priority above 0 for work that needs the machine, not the model."""
        with self._lock:
            self.scheduler.reserved += 1
        try:
            yield
        finally:
            with self._lock:
                self.scheduler.reserved -= 1
                self._lock.notify()

    def wake(self) -> None:
        """Look at the requests again: one was cancelled, or read from."""
        with self._lock:
            self._lock.notify()

    def statistics(self) -> Statistics:
        """Return what the engine does now; may be called from any thread."""
        pool, scheduler, now = self.pool, self.scheduler, time.monotonic()
        recent = sum(count for at, count in list(self._written) if now - at < _RATE_S)
        return Statistics(
            len(scheduler.running), len(scheduler.waiting) + len(self._new), pool.total,
            pool.total - pool.available, pool.idle, pool.on_host, recent / _RATE_S,
            self._prompted, self._cached, self._proposed, self._accepted,
            scheduler.preemptions, pool.evictions, pool.swaps,
        )  # fmt: skip

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                worked = self.step()
            except Exception:  # noqa: BLE001  its requests were told; the others go on
                _LOG.exception("a step failed; its requests have ended")
                continue
            with self._lock:
                if not worked and not self._new and not stopping.is_set():
                    # The time is for readers that catch up, and cancel, without a word.
                    self._lock.wait(0.05 if self.scheduler.waiting else None)
        self.close()

    def _receive(self) -> None:
        """Take new requests, and end those that were cancelled."""
        with self._lock:
            new, self._new = self._new, []
        for sequence in new:
            self.scheduler.add(sequence)
            if (reason := sequence.resume()) is not None:
                self._end(sequence, reason)
        for sequence in [*self.scheduler.running, *self.scheduler.waiting]:
            if sequence.stream.cancelled:
                self._end(sequence, "cancelled")

    def _advance(self, work: Items[Work[Sequence]], scores: Scores) -> None:
        """Choose tokens from a step's scores, as far as proposals were right."""
        choosing, first = [], 0
        for item in work:
            item.sequence.computed = item.start + len(item.tokens) - item.drafts
            if item.chooses:
                if item.sequence.answered == 0 and len(item.sequence.tokens) >= _LONG_PROMPT:
                    item.sequence.share()
                    item.sequence.storage.keep()
                choosing.append((item, first))
                first += item.drafts + 1
            else:
                item.sequence.share()
        written, depth = 0, 0
        while choosing:
            rows = [item.sequence.row() for item, _ in choosing]
            at = [place + depth for _, place in choosing]
            chosen = choose(scores if len(at) == len(scores) else scores[at], rows)
            going_on = []
            for (item, place), choice in zip(choosing, chosen, strict=True):
                sequence, draft = item.sequence, item.tokens[len(item.tokens) - item.drafts :]
                if choice is None:
                    self._end(sequence, "error", NOT_FINITE)
                    continue
                written += 1
                reason = sequence.add(choice)
                right = depth < item.drafts and draft[depth] == choice.token
                if right:
                    sequence.computed += 1
                if reason is None and right:
                    going_on.append((item, place))
                    continue
                sequence.proposed += item.drafts
                sequence.accepted += depth + right
                sequence.share()
                if reason is not None:
                    self._end(sequence, reason)
            choosing, depth = going_on, depth + 1
        self._count(written)

    def _end(self, sequence: Sequence, reason: Reason, message: str = "") -> None:
        self.scheduler.remove(sequence)
        self._prompted += len(sequence.request.prompt)
        self._cached += min(sequence.cached, len(sequence.request.prompt))
        self._proposed += sequence.proposed
        self._accepted += sequence.accepted
        sequence.end(reason, message)

    def _count(self, written: int) -> None:
        now = time.monotonic()
        self._written.append((now, written))
        while now - self._written[0][0] > _RATE_S:
            self._written.pop(0)


def _free_bytes(device: str) -> int:
    """Return the bytes of a device that are free."""
    return free_host_bytes() if device == "cpu" else int(torch.cuda.mem_get_info()[0])


class _Overtaken(Exception):
    """Signal that a step is given up: its states are as before."""


def _draft(
    folder: Path, device: str, free: int, main: Path, tokenizer: Tokenizer
) -> tuple[DraftModel, int]:
    """Load the model that proposes, and return it with the bytes it takes. Raises ModelRefused."""
    if Tokenizer.load(folder).backend.get_vocab() != tokenizer.backend.get_vocab():
        raise ModelRefused(
            phrase(
                "{name} has another tokenizer than {other}, so it cannot propose its tokens",
                name=folder.name,
                other=main.name,
            )
        )
    room = footprint(folder).plan(device, free, cache_tokens=_DRAFT_CACHE)
    model = load(folder, device)
    cache = PagedCache(model.config, room.blocks, model.device, model.dtype)
    vocabulary = read_config(main).vocabulary
    return DraftModel(model, cache, vocabulary), room.weights + room.cache
