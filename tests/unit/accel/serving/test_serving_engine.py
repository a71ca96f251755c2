"""What requests to the engine get: text, stops, limits, grammars, probabilities, and refusals."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from serving_models import FAMILIES, oracle

from gpudeck.accel.serving import engine as engines
from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.engine import Engine
from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.accel.serving.memory import footprint
from gpudeck.accel.serving.request import Ended, Grammar, Piece, Request, Sampling
from gpudeck.accel.serving.sampler import Row, Scores, choose, largest
from gpudeck.accel.serving.speculation import PromptLookup
from gpudeck.accel.serving.transformer import load

QUICK = ("Qwen 3 MoE", "Phi-3")
"""The families whose long texts are compared in every run."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny.make(folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    return Engine.load(folder, cache_tokens=2048)


def finish(engine, *streams):
    while any(stream.ended is None for stream in streams):
        engine.step()
    return [stream.text() for stream in streams]


def ended(stream):
    return stream.ended


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in FAMILIES],
)
def test_256_greedy_tokens_are_those_of_transformers(family, tmp_path, folder, engine):
    """In fp32, with proposals, in chunks: the same text token for token."""
    model = oracle(family, tmp_path)
    prompt = list(range(5, 25))
    tokens = torch.tensor([prompt])
    past = None
    with torch.no_grad():  # by the logits: no sampling rule of transformers' comes in between
        for _ in range(256 if family != "Phi-4-mini" else 200):
            out = model(tokens[:, -1:] if past else tokens, past_key_values=past, use_cache=True)
            past = out.past_key_values
            tokens = torch.cat((tokens, out.logits[:, -1].argmax(-1, keepdim=True)), dim=1)
    wanted = tokens[0, len(prompt) :].tolist()
    ours = load(tmp_path)
    cache = PagedCache(ours.config, 32, ours.device, torch.float32)
    mine = Engine(ours, engine.tokenizer, None, cache, step_tokens=16, speculator=PromptLookup())
    request = Request(tuple(prompt), len(wanted), Sampling(0.0, logprobs=0), ignore_end=True)
    stream = mine.submit(request)
    while mine.step():
        pass
    events = [stream.take() for _ in range(len(stream._events))]
    assert [c.token for e in events if isinstance(e, Piece) for c in e.choices] == wanted


@pytest.mark.parametrize("parts", [1, 64])
def test_the_largest_logits_are_found_in_parts_as_in_one(parts):
    logits = torch.randn(5, 512, generator=torch.Generator().manual_seed(0))
    logits[1], logits[2, 100] = 0, torch.nan  # all are alike; the result is not finite
    found = largest(logits, parts)
    kept = [0, 1, 3, 4]
    assert torch.equal(found[kept, 0], logits.amax(dim=1)[kept]) and found[2].isnan()[0]
    assert torch.equal(logits[torch.arange(5), found[:, 1].long()][kept], found[kept, 0])
    assert int(found[2, 1]) == 100
    assert largest(logits[:0], parts).shape == (0, 2)  # a step of prompts may choose nothing


def test_a_step_of_a_prompt_that_chooses_no_token_is_followed_by_the_same_answer(folder, engine):
    model = load(folder)
    cache = PagedCache(model.config, 8, model.device, torch.float32)
    mine = Engine(model, engine.tokenizer, None, cache, step_tokens=16)
    request = replace(engine.request("The queue waits. " * 8, 5), ignore_end=True)
    assert 32 < len(request.prompt) <= 48
    run, chosen = mine.runner.run, []

    def counted(work):
        scores = run(work)
        chosen.append(len(scores))
        return scores

    mine.runner.run = counted
    texts = [finish(each, each.submit(request)) for each in (mine, engine)]
    assert texts[0] == texts[1] and chosen == [0, 0, 1, 1, 1, 1, 1]


def test_an_answer_ends_before_a_stop_text_that_comes_in_pieces(engine):
    request = replace(engine.request("The queue", 60), ignore_end=True)
    (whole,) = finish(engine, engine.submit(request))
    stop = whole[20:26]
    stream = engine.submit(replace(request, stops=("never said", stop)))
    pieces = []
    while not isinstance(event := stream.take() or engine.step(), Ended):
        if isinstance(event, Piece):
            pieces.append(event.text)
    assert "".join(pieces) == whole[: whole.index(stop)]
    assert event.reason == "stop"


def test_a_second_request_finds_its_prompt_in_the_cache(engine):
    text = "".join(tiny.sentences(12, seed=7))
    first = engine.submit(engine.request(text, 4))
    (one,) = finish(engine, first)
    second = engine.submit(engine.request(text, 4))
    assert finish(engine, second) == [one]
    assert ended(second).cached_tokens == ended(second).prompt_tokens - 1
    assert ended(first).cached_tokens < ended(first).prompt_tokens / 2


def test_a_seed_gives_the_same_text_in_any_company(engine):
    wanted = engine.request("The fan", 30, Sampling(1.0, seed=5, top_p=0.9))
    (alone,) = finish(engine, engine.submit(wanted))
    others = [
        engine.submit(engine.request(f"{i} GPU", 30, Sampling(1.0, seed=i))) for i in range(5)
    ]
    again = engine.submit(wanted)
    assert finish(engine, again, *others)[0] == alone
    different = replace(wanted, sampling=replace(wanted.sampling, seed=6))
    assert finish(engine, engine.submit(different)) != [alone]


SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["name", "count"],
    "properties": {"name": {"enum": ["GPU", "queue"]}, "count": {"type": "integer",
                                                             "minimum": 0, "maximum": 99}},
}  # fmt: skip


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_answers_follow_a_schema_or_an_expression(engine, temperature):
    sampling = Sampling(temperature, seed=3)
    schema = replace(
        engine.request("Say: ", 100, sampling), grammar=Grammar("json_schema", json.dumps(SCHEMA))
    )
    expression = replace(schema, grammar=Grammar("regex", "[a-c]{5}-[0-9]{3}"))
    made, matched = finish(engine, engine.submit(schema), engine.submit(expression))
    found = json.loads(made)
    assert found["name"] in ("GPU", "queue") and 0 <= found["count"] <= 99
    assert re.fullmatch("[a-c]{5}-[0-9]{3}", matched)


@pytest.mark.parametrize(
    "grammar",
    [Grammar("json_schema", "{"), Grammar("json_schema", '{"type": "nonsense"}'),
     Grammar("regex", "(("), Grammar("lark", "start: missing"), Grammar("regex", "a" * 2**18)],
)  # fmt: skip
def test_a_grammar_that_is_none_is_refused(engine, grammar):
    with pytest.raises(RequestRefused, match=r"cannot be used|characters") as caught:
        engine.submit(replace(engine.request("x", 5), grammar=grammar))
    assert "\n" not in str(caught.value)


def test_logprobs_are_those_of_the_model(engine):
    stream = engine.submit(engine.request("The block", 5, Sampling(0.0, logprobs=3)))
    finish_events = []
    while not isinstance(event := stream.take() or engine.step(), Ended):
        if isinstance(event, Piece):
            finish_events += event.choices
    for choice in finish_events:
        assert choice.likely[0] == (choice.token, choice.logprob)
        values = [value for _, value in choice.likely]
        assert values == sorted(values, reverse=True) and values[0] < 0


def test_chance_follows_the_distribution():
    """Each number of tokens is within five standard deviations of what was expected."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -3.0]).repeat(1, 1)
    for sampling in (
        Sampling(1.0),
        Sampling(0.7, top_k=3),
        Sampling(1.0, top_p=0.85),
        Sampling(1.3, min_p=0.1),
    ):
        likely = torch.softmax(logits[0] / sampling.temperature, 0)
        if sampling.top_k:
            likely[sampling.top_k :] = 0
        if sampling.top_p < 1:
            likely[int((likely.cumsum(0) < sampling.top_p).sum()) + 1 :] = 0
        likely[likely < sampling.min_p * likely.max()] = 0
        likely /= likely.sum()
        count = 4000
        rows = [Row(replace(sampling, seed=seed), 0) for seed in range(count)]
        drawn = torch.tensor([c.token for c in choose(Scores.of(logits.expand(count, -1)), rows)])
        share = drawn.bincount(minlength=5) / count
        assert ((share - likely).abs() <= 5 * (likely * (1 - likely) / count).sqrt() + 1e-9).all()


def test_penalties_change_what_occurred():
    logits = torch.tensor([[3.0, 2.9, -1.0]])
    row = Row(Sampling(0.0, frequency=0.2), 1, counts=Counter([0]))
    assert choose(Scores.of(logits), [row])[0].token == 1
    row = Row(Sampling(0.0, repetition=2.0), 1, prompt=frozenset([0, 1]))
    assert choose(Scores.of(torch.tensor([[3.0, 2.9, 1.6]])), [row])[0].token == 2
    row = Row(Sampling(0.0, repetition=2.0), 1, prompt=frozenset([0]))
    assert choose(Scores.of(torch.tensor([[-1.0, -1.2]])), [row])[0].token == 1


def test_a_nan_ends_one_request_alone(engine, monkeypatch):
    run = engine.runner.run

    def damaged(work):
        logits = run(work).logits.clone()
        logits[0] = torch.nan
        return Scores.of(logits)

    good, bad = engine.request("One", 4), engine.request("Two", 4)
    (wanted,) = finish(engine, engine.submit(good))
    streams = [engine.submit(bad), engine.submit(good)]
    monkeypatch.setattr(engine.runner, "run", damaged)
    engine.step()
    monkeypatch.undo()
    assert finish(engine, *streams)[1] == wanted
    assert ended(streams[0]).reason == "error" and "not finite" in ended(streams[0]).message


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 5), "tokens from 0"),
        (Request((10**9,), 5), "tokens from 0"),
        (Request((5,), 0), "at most 1024 fit"),
        (Request((5,) * 1000, 100), "at most 1024 fit"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(engine, request_, message):
    with pytest.raises(RequestRefused, match=message):
        engine.submit(request_)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": float("nan")},
        {"min_p": 2},
        {"logprobs": 99},
        {"presence": 5},
    ],
)
def test_sampling_that_means_nothing_is_refused(values):
    with pytest.raises(RequestRefused, match=next(iter(values))):
        Sampling(**values)


def test_a_cancelled_request_frees_its_blocks_within_a_step(engine):
    stream = engine.submit(replace(engine.request("The tile", 500), ignore_end=True))
    for _ in range(20):
        engine.step()
    assert engine.statistics().used_blocks > 0
    stream.cancel()
    engine.step()
    assert ended(stream).reason == "cancelled" and engine.statistics().used_blocks == 0


def test_a_reader_that_stops_reading_stops_only_itself(engine, monkeypatch):
    monkeypatch.setattr(engines.__name__.replace("engine", "request") + ".MOST_UNREAD", 8)
    slow = engine.submit(replace(engine.request("The clock", 300), ignore_end=True))
    for _ in range(50):
        engine.step()
    assert len(slow._events) == 8 and engine.statistics().used_blocks == 0
    other = engine.submit(replace(engine.request("The stream", 5), ignore_end=True))
    while other.ended is None:
        engine.step()
    while slow.ended is None:  # it goes on where it was
        slow.take()
        engine.step()
    assert ended(slow).tokens == 300


def test_important_requests_go_first_and_clients_share(folder):
    engine = Engine.load(folder, cache_tokens=1024, most_running=1)
    order = []

    def submit(name, **more):
        stream = engine.submit(replace(engine.request("x", 3), ignore_end=True, **more))
        stream.notify(lambda: stream.ended and order.append(name))

    for i in range(3):
        submit(f"a{i}", client="a", priority=1)
    submit("b0", client="b", priority=1)
    submit("person", client="c", priority=0)
    while engine.step():
        pass
    assert order[0] == "person" and order.index("b0") < order.index("a2")


def test_the_engine_runs_in_a_thread_and_ends_what_is_left(folder):
    engine = Engine.load(folder, cache_tokens=1024)
    with engine.running():
        assert engine.submit(engine.request("The kernel", 5)).text() is not None
        left = engine.submit(replace(engine.request("The cache", 900), ignore_end=True))
        time.sleep(0.05)
    assert left.ended is not None and left.ended.reason == "error"
    with pytest.raises(RequestRefused, match="has ended"):
        engine.submit(engine.request("x", 5))


def test_an_engine_that_waits_for_requests_ends_at_once(folder):
    engine = Engine.load(folder, cache_tokens=1024)
    running = engine.running()
    running.__enter__()
    engine.submit(engine.request("The kernel", 2)).text()
    time.sleep(0.1)  # its thread waits for the next request
    ending = threading.Thread(target=running.__exit__, args=(None, None, None), daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(folder):
    with pytest.raises(ModelRefused, match=r"needs 0\.3 GiB .* 0\.1 GiB are free"):
        footprint(folder).plan("cpu", 2**27)
    room = footprint(folder).plan("cpu", 2**30)
    assert room.weights + room.cache + room.work <= 2**30 and room.tokens >= 1024


def drafted(folder, draft, samplings):
    """Return each answer with a draft model, and its end, several at once."""
    engine = Engine.load(folder, cache_tokens=4096, draft=draft)
    asked = [replace(engine.request("The queue", 20, s), ignore_end=True) for s in samplings]
    streams = [engine.submit(request) for request in asked]
    texts = finish(engine, *streams)
    speculator = engine.scheduler._speculator
    assert len(speculator.free) == speculator.runner._cache.blocks, "it keeps no blocks"
    return texts, [ended(stream) for stream in streams]


def test_a_draft_model_changes_no_answer_and_its_accepted_tokens_are_told(folder, tmp_path, engine):
    """Token for token what the model says alone, whatever the seed: so the distribution is its."""
    samplings = [
        Sampling(temperature=1.0, seed=seed, top_p=0.9 if seed % 2 else 1.0) for seed in range(12)
    ] + [Sampling(temperature=0.0)]
    alone = finish(
        engine,
        *(
            engine.submit(replace(engine.request("The queue", 20, s), ignore_end=True))
            for s in samplings
        ),
    )
    twin, ends = drafted(folder, folder, samplings)
    assert twin == alone
    # A model that thinks alike draws alike: every proposal is accepted.
    assert sum(end.proposed for end in ends) == sum(end.accepted for end in ends) > 100
    tiny.make(tmp_path / "other", seed=5)
    other, ends = drafted(folder, tmp_path / "other", samplings)
    assert other == alone
    assert 0 <= sum(end.accepted for end in ends) < sum(end.proposed for end in ends)


def test_an_accepted_proposal_that_ends_the_answer_counts(folder, engine):
    """Three proposals and the token after them a step: all are accepted, until a stop text."""
    sampling = Sampling(temperature=1.0, seed=3)

    def asked(**more):
        return replace(engine.request("The queue", 20, sampling), ignore_end=True, **more)

    (text,) = finish(engine, engine.submit(asked()))
    mine, within = Engine.load(folder, cache_tokens=4096, draft=folder), set()
    assert finish(mine, mine.submit(asked())) == [text]  # the prompt is in the cache from now on
    for at in range(1, len(text) - 2, 3):
        stream = mine.submit(asked(stops=(text[at : at + 3],)))
        finish(mine, stream)
        steps, left = divmod(stream.ended.tokens, 4)
        assert (stream.ended.reason, stream.ended.accepted) == ("stop", 3 * steps + left)
        within.add(left)
    assert within > {0}, "some answers end within proposals"


def test_a_draft_model_of_another_tokenizer_is_refused(folder, tmp_path):
    tiny.make(tmp_path / "other")
    made = json.loads((tmp_path / "other" / "tokenizer.json").read_text())
    made["added_tokens"][0]["content"] = "<|other|>"
    vocabulary = made["model"]["vocab"]
    vocabulary["<|other|>"] = vocabulary.pop("<|endoftext|>")
    (tmp_path / "other" / "tokenizer.json").write_text(json.dumps(made))
    with pytest.raises(ModelRefused, match="other has another tokenizer than tiny"):
        Engine.load(folder, cache_tokens=1024, draft=tmp_path / "other")


def test_lookup_proposes_what_followed_before():
    lookup = PromptLookup(3, 2)
    growing = lookup.begin(Request((1,), 1))
    assert growing.propose([1, 2, 3, 4, 9], 4) == []
    assert growing.propose([1, 2, 3, 4, 9, 2, 3], 2) == [4, 9]
    assert growing.propose([1, 2, 3, 4, 9, 2, 3, 8, 2, 3], 2) == [8, 2]  # the latest
    assert lookup.begin(Request((1,), 1)).propose([7, 7, 7], 4) == [7]
