"""The model's training texts are true and complete, held-out requests are never seen, and it
learns.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from itertools import islice, product
from random import Random
from typing import get_args

import numpy as np
import pytest
import torch

from accel.rwkv import weights
from accel.rwkv.model import RWKV7
from accel.rwkv.tokenizer import END, VOCABULARY, Tokenizer
from assistant.engine.engine import Engine
from assistant.intents import table
from assistant.intents.masks import filled, masked
from assistant.intents.normalize import plain
from assistant.training import (
    briefs,
    card,
    data,
    evaluate,
    handwritten,
    phrasings,
    requests,
    train,
    vocabulary,
)
from assistant.training.corpus import stream
from assistant.training.network import Network
from assistant.workloads import random_machines
from assistant.writing import compact
from assistant.writing.verify import fill, verify
from scheduler.protocol.errors import UserError

SLOT = re.compile(r"\{[^{}]*\}")


def test_every_training_text_is_faithful_complete_and_free_of_digits() -> None:
    for seed in range(80):
        random = Random(seed)
        facts = random_machines.random_facts(random, gaps=0.4)
        for question in (None, random_machines.random_question(random, facts)):
            known = compact.compact(facts, question)
            text = briefs.write_text(random, known)
            for end in (found.end() for found in re.finditer(r"[.](?= |$)", text)):
                said = fill(text[:end], known.slots)
                assert all(fact.said in said for fact in known.overdue(text[:end])), (
                    "a line is told whole before the next one"
                )
            verify(
                text,
                facts,
                [fact for fact in known.slots if fact.name in known.required],
                known.slots,
            )
            assert not re.search(r"\d", SLOT.sub("", text))


@pytest.mark.slow
def test_held_out_requests_are_in_no_training_sample() -> None:
    learnt, *judged = (
        {requests.example(Random(i), part).request for i in range(500)}
        for part in get_args(phrasings.Part)
    )
    assert len(learnt) > 480
    for held_out in judged:
        assert len(held_out) > 400 and len(learnt & held_out) <= 0.01 * len(held_out), (
            "but for what a typo made the same"
        )


@pytest.mark.slow
def test_held_out_phrasings_of_a_voice_are_taught_by_no_sample() -> None:
    assert len(phrasings.voices("en")) > 10
    for voice in ("ordinary", "terse"):
        withheld = phrasings.lines("en", "templates").items()
        mine = {
            name: own
            for name, section in withheld
            if (own := [line for line in section if line.voice == voice])
        }
        sentences = [
            sentence
            for section in mine.values()
            for line in section
            for sentence in phrasings.sentences(line.text)
        ]
        assert len(sentences) > 100 and {
            phrasings.part_of("en", sentence) for sentence in sentences
        } <= set(phrasings.WHOLE)
        found = [requests.held_out(Random(i), voice, "en") for i in range(40)]
        assert {tuple(one.route.split()[:2]) for one in found} <= set(mine) and len(
            {one.request for one in found}
        ) > 30


def test_only_whole_phrases_are_replaced(monkeypatch) -> None:
    known = phrasings.Grammar(
        {}, {}, {"gets stuck": ["hangs"], "gets": ["receives"], "job": ["task"]}
    )
    monkeypatch.setattr(phrasings, "grammar", lambda language: known)
    monkeypatch.setattr(phrasings, "_longest", lambda language: 3)
    monkeypatch.setattr(phrasings, "part_of", lambda language, sentence: "learnt")
    said = {
        phrasings.varied(Random(i), "en", "<job> gets stuck, a job-file or jobs (job)")
        for i in range(200)
    }
    assert said == {
        f"<job> {verb}, a job-file or jobs ({noun})"
        for verb in ("gets stuck", "hangs")
        for noun in ("job", "task")
    }


@pytest.mark.slow
def test_replacing_words_never_makes_a_held_out_sentence() -> None:
    taught: dict[str, set[str]] = {part: set() for part in get_args(phrasings.Part)}
    varied = 0
    for i in range(6000):
        random = Random(i)
        language = random.choice(tuple(requests.LANGUAGES))
        for part in ("learnt", "templates"):
            section = random.choice(list(phrasings.lines(language, part).values()))
            line = random.choice(section)
            sentence = phrasings.chosen(random, line.text)
            found = phrasings.part_of(language, sentence)
            if found == "learnt":
                said = phrasings.varied(random, language, sentence)
                varied += said != sentence
                taught[found].add(f"{language} {' '.join(said.split())}")
            else:
                taught[found].add(f"{language} {' '.join(sentence.split())}")
    assert all(len(some) > 30 for some in taught.values()) and varied > 300
    assert not taught["learnt"] & (taught["combinations"] | taught["templates"] | taught["unheard"])


def test_a_combination_is_held_out_only_if_its_words_are_learnt_elsewhere() -> None:
    verbs, ends = (
        ("stop", "end", "kill", "drop"),
        ("now", "at once", "please", "soon", "today", "first"),
    )
    said = {f"{verb} <job> {end}": (verb, end) for verb, end in product(verbs, ends)}
    held_out = phrasings.combinations(f"({'|'.join(verbs)}) <job> ({'|'.join(ends)})")
    assert 0 < len(held_out) < len(said) / 2 and held_out <= set(said)
    for sentence in held_out:
        learnt = [words for other, words in said.items() if other not in held_out]
        assert all(any(words[i] == said[sentence][i] for words in learnt) for i in range(2))
    assert not phrasings.combinations(f"({'|'.join(ends)}) <job>"), (
        "one choice alone is a wording of its own"
    )


@pytest.mark.slow
def test_every_tool_can_be_asked_for_in_every_language() -> None:
    for language in requests.LANGUAGES:
        assert set(phrasings.lines(language, "learnt")) == set(table.BY_NAME)
    for i, (language, (role, tool)) in enumerate(product(requests.LANGUAGES, table.BY_NAME)):
        lines = phrasings.lines(language, "learnt")[role, tool]
        made = (
            requests.example_of(
                Random(seed), language, role, tool, Random(seed).choice(lines), "learnt"
            )
            for seed in range(i, i + 300)
        )
        table.parse(next(filter(None, made)).route)


def test_phrasings_set_only_arguments_of_their_tool() -> None:
    for language, (role, tool) in product(requests.LANGUAGES, table.BY_NAME):
        known = {argument.name for argument in table.BY_NAME[role, tool].arguments}
        lists = phrasings.grammar(language).lists
        for line in phrasings.grammar(language).sections[role, tool]:
            set_by_lists = {
                name
                for used in re.findall(r"<(\w+)>", line.text)
                for entry in lists[used]
                for name in entry.arguments
            }
            assert set_by_lists | set(line.arguments) <= known, (language, role, tool, line.text)


def test_handwritten_requests_are_never_learnt(monkeypatch) -> None:
    assert len(handwritten.handwritten()) >= 200
    seen = {requests.example(Random(i), "learnt").request for i in range(300)}
    assert not any(map(handwritten.is_handwritten, seen))
    some = handwritten.HandwrittenRequest(f"{min(seen, key=len)} !".upper(), "answer other")
    monkeypatch.setattr(handwritten, "_known", lambda: {plain(masked(some.request)[0])})
    again = {requests.example(Random(i), "learnt").request for i in range(300)}
    assert min(seen, key=len) not in again and len(seen & again) > 250


def test_handwritten_requests_are_not_learnt_in_disguise(monkeypatch) -> None:
    pause = phrasings.Phrasing("pause the queue", {}, polite=True)
    made = [
        requests.example_of(Random(seed), "en", "operate", "pause", pause, "learnt")
        for seed in range(40)
    ]
    assert len({found.request for found in made if found}) > 10, "polite, mistyped, in capitals"
    monkeypatch.setattr(requests, "varied", lambda random, language, sentence: sentence)
    monkeypatch.setattr(handwritten, "_known", lambda: {"pause the queue"})
    assert not any(
        requests.example_of(Random(seed), "en", "operate", "pause", pause, "learnt")
        for seed in range(40)
    )


@pytest.mark.slow
def test_no_sentence_asks_for_two_things() -> None:
    for language in requests.LANGUAGES:
        needs: dict[str, tuple[tuple[str, str], dict[str, str]]] = {}
        tools: dict[str, tuple[str, str]] = {}
        for name, section in phrasings.grammar(language).sections.items():
            for line in section:
                for sentence in phrasings.sentences(line.text):
                    plain = " ".join(re.sub(r"[?!.,:]", " ", sentence).split())
                    assert needs.setdefault(plain, (name, line.arguments)) == (
                        name,
                        line.arguments,
                    ), (language, plain)
                    seen = re.sub(r"<job>|<other>|%[cw]", "{w1}", plain)
                    assert tools.setdefault(seen, name) == name, (
                        language,
                        seen,
                        "a name and a command are masked alike",
                    )


def test_the_route_of_a_handwritten_request_can_be_expressed() -> None:
    for asked in handwritten.handwritten():
        route = table.parse(asked.route)
        assert route.line() == asked.route
        assert {value.strip("{}") for value in route.arguments.values() if "{" in value} <= set(
            masked(asked.request)[1]
        ), asked
        order = [argument.name for argument in table.BY_NAME[route.role, route.tool].arguments]
        assert list(route.arguments) == sorted(route.arguments, key=order.index), asked


def test_every_route_names_slots_that_its_request_has() -> None:
    for i in range(150):
        found = requests.example(Random(i), get_args(phrasings.Part)[i % 4])
        assert set(SLOT.findall(found.route)) <= set(SLOT.findall(found.request))
        assert not re.search(r"\d", SLOT.sub("", found.route + found.request))


@pytest.mark.parametrize(
    ("request_", "text", "values"),
    [
        ("cancel job 1234", "cancel job {n1}", {"n1": "1234"}),
        ("gpu0 and #7, 1.5 h", "gpu {n1} and #{n2}, {n3} h", {"n1": "0", "n2": "7", "n3": "1.5"}),
        (
            "GPU-1, cuda:0 and job-12",
            "GPU {n1}, gpu {n2} and job {n3}",
            {"n1": "1", "n2": "0", "n3": "12"},
        ),
        ("run train_big.py now", "run {w1} now", {"w1": "train_big.py"}),
        ('end "cancel all jobs"', "end {w1}", {"w1": "cancel all jobs"}),
        ("what is {n1}?", "what is ({w1})?", {"w1": "n1"}),
        (
            "since 3pm, 14:30 or 2026-11-20",
            "since {t1}, {t2} or {t3}",
            {"t1": "15:00", "t2": "14:30", "t3": "2026-11-20"},
        ),
        ("what's job seven's log", "what's job {n1}'s log", {"n1": "7"}),
        (
            "queue python a.py --lr 1e-4 on 2 gpus",
            "queue {w1} on {n1} gpus",
            {"w1": "python a.py --lr 1e-4", "n1": "2"},
        ),
        ("the last 24h or two days", "the last {n1} h or {n2} days", {"n1": "24", "n2": "2"}),
        ("what happened?", "what happened?", {}),
        ("run the job one more time", "run the job one more time", {}),
        ("retry jobs one and two", "retry jobs {n1} and two", {"n1": "1"}),
    ],
)
def test_numbers_and_names_are_hidden_from_the_model(request_, text, values) -> None:
    assert masked(request_) == (text, values)
    for slot, value in values.items():
        assert filled(f"x={{{slot}}}", values) == f"x={value}"
    with pytest.raises(ValueError, match=r"no \{n9\}"):
        filled("job={n9}", values)


def test_names_of_jobs_are_masked() -> None:
    assert (
        masked("how is job nightly, and llama-ft?", ["nightly", "llama-ft"])[0]
        == "how is job {w1}, and {w2}?"
    )
    assert masked("write a report", ["report"])[0] == "write a report", (
        "a job's name does not change what a request asks for"
    )


def test_routes_are_those_of_the_tools() -> None:
    assert table.parse("operate move job={n1} place=first") == (
        "operate",
        "move",
        {"job": "{n1}", "place": "first"},
    )
    assert (
        table.parse("operate move job={n1} place=first").line()
        == "operate move job={n1} place=first"
    )
    for line in (
        "",
        "operate",
        "operate dance",
        "answer device metric=smell",
        "answer device gpu={w1}",
        "operate cancel job={n1} job={n2}",
    ):
        with pytest.raises(ValueError, match=r"there is no tool|takes no"):
            table.parse(line)


def test_the_tokenizer_reads_a_trained_vocabulary_and_spells_digits(tmp_path) -> None:
    samples = list(islice(stream(3, 0.5), 60))
    vocabulary.write(
        vocabulary.train((s.prompt + s.answer for s in samples), 700),
        tmp_path / "rwkv_vocab_v20230424.txt",
    )
    tokenizer = Tokenizer.load(tmp_path)
    assert 400 < tokenizer.size <= 701
    text = max((sample.prompt for sample in samples), key=len) + " 中文 \x00 2048"
    assert tokenizer.decode(tokenizer.encode(text)) == text.encode()
    assert len(tokenizer.encode(text)) < len(text) / 2
    assert len(tokenizer.encode("2048")) == 4


def test_the_trained_network_equals_the_engine() -> None:
    torch.manual_seed(0)
    network = Network(2, 64, 50)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    tokens = list(range(40))
    trained = network(torch.tensor([tokens]))[0].detach()
    engine = RWKV7({name: t.detach() for name, t in network.canonical().items()})
    for length in (1, 17, 40):
        logits, _ = engine.forward(tokens[:length])
        assert float((logits - trained[length - 1]).norm() / logits.norm()) < 1e-4


def test_a_batch_has_whole_samples_and_targets_their_answers(tmp_path) -> None:
    pool = data.prepare(
        tmp_path, samples=60, judged=4, tokens=500, briefs=0.5, longest=1000, workers=1
    )
    tokenizer, seen = Tokenizer.load(tmp_path), 0
    for batch in islice(pool.batches(np.random.default_rng(0), rows=8, tokens=3000), 60):
        assert batch.tokens.size <= 3000 and len(batch.tokens) <= 8
        seen += len(batch.tokens)
        rows = batch.at // batch.tokens.shape[1]
        for row, ids in enumerate(batch.tokens):
            answer = batch.wanted[rows == row]
            text = tokenizer.decode(ids).decode()
            assert (
                text.endswith(" " + tokenizer.decode(answer).decode().strip())
                and "Assistant: " in text
            )
            assert answer[-1] == END and (answer[:-1] != END).all()
    assert seen >= 60


def _is_a_mean_of_its_steps(folder) -> None:
    state = torch.load(folder / train.CHECKPOINT, weights_only=True)
    saved = weights.load(folder)["head.weight"].float()
    mean, last = state["averaged"]["head/weight"], state["network"]["head/weight"]
    assert torch.allclose(saved, mean, atol=1e-3)
    assert 0 < float((mean - last).norm()) < 0.2 * float(last.norm())


def test_a_tiny_model_learns_resumes_and_runs_in_the_engine(tmp_path, monkeypatch) -> None:
    torch.set_num_threads(1)
    data.prepare(
        tmp_path, samples=60, judged=4, tokens=400, briefs=0.0, longest=150, workers=1, seed=2
    )
    plan = train.Plan(layers=2, channels=64, rows=4, steps=25, warm_up=3, rate=4e-3, last_rate=4e-3)
    losses = train.train(plan, tmp_path)
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    again = train.train(replace(plan, steps=27, resume=True), tmp_path)
    assert again[:25] == losses and len(again) == 27
    engine = Engine(str(tmp_path), "cpu")
    assert (
        isinstance(evaluate.written(engine, table.SYSTEM, "pause the queue"), str)
        and engine.compact
    )
    assert not any(evaluate.judged(engine, random_machines.random_facts(Random(1)), None)), (
        "it has not learnt to write"
    )
    _is_a_mean_of_its_steps(tmp_path)
    assert json.loads((tmp_path / "training.json").read_text())["steps"] == 27
    monkeypatch.setattr(
        evaluate,
        "handwritten",
        lambda: [
            handwritten.HandwrittenRequest("pause", "operate pause"),
            handwritten.HandwrittenRequest("pausa", "operate kill", "es"),
        ],
    )
    found = evaluate.evaluate(tmp_path, routings=2, texts=1)
    assert found["routing, hand-written, by language"]["es"] == 0, "a route that it does not need"
    (tmp_path / evaluate.EVALUATION).write_text(json.dumps(found))
    told = card.card(tmp_path)
    assert "27 steps" in told and "| operate pause | " in told


def test_a_model_starts_from_the_weights_of_another_of_its_vocabulary_and_shape(tmp_path) -> None:
    torch.set_num_threads(1)
    first, second = tmp_path / "first", tmp_path / "second"
    data.prepare(first, samples=30, judged=4, tokens=400, briefs=0.0, longest=150, workers=1)
    plan = train.Plan(layers=1, channels=64, rows=4, steps=3, warm_up=1)
    train.train(plan, first)
    second.mkdir()
    shutil.copy(first / VOCABULARY, second)
    data.prepare(
        second, samples=30, judged=4, tokens=400, briefs=0.0, longest=150, workers=1, seed=5
    )
    onward = replace(plan, start=str(first), steps=1)
    begun = train.Trainer(onward, second, 0.0).averaged.canonical()
    assert all(
        torch.equal(begun[name], tensor.float()) for name, tensor in weights.load(first).items()
    )
    train.train(onward, second)
    about = json.loads((second / train.ABOUT).read_text())
    assert (
        about["before"] == json.loads((first / train.ABOUT).read_text())
        and about["plan"]["start"] == "first"
    )
    train.train(replace(plan, steps=2, resume=True), second)
    assert json.loads((second / train.ABOUT).read_text())["before"] == about["before"]
    (bare := tmp_path / "bare").mkdir()
    shutil.copy(first / train.MODEL, bare)
    for wrong, message in (
        (replace(onward, channels=128), "another shape"),
        (replace(onward, start=str(tmp_path)), "no model.safetensors"),
        (replace(onward, start=str(bare)), f"no {VOCABULARY} in"),
    ):
        with pytest.raises(UserError, match=message):
            train.Trainer(wrong, second, 0.0)
    (second / VOCABULARY).write_text(
        "".join((first / VOCABULARY).read_text().splitlines(keepends=True)[:-1])
    )
    with pytest.raises(UserError, match="another vocabulary"):
        train.Trainer(onward, second, 0.0)
