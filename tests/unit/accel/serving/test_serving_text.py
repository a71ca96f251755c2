"""Tokens, pieces of text, and chat templates, hostile ones too."""

from __future__ import annotations

import resource

import pytest

from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.accel.serving.folder_template import FolderTemplate, load_template
from gpudeck.accel.serving.tokens import Pieces, Tokenizer

CHAT = [{"role": "user", "content": "Grüße 😀, how full is the queue?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    assert tiny.main([str(folder)]) == 0
    return folder


def test_pieces_are_the_text_and_never_part_of_a_character(folder):
    tokenizer = Tokenizer.load(folder)
    text = CHAT[0]["content"] * 3
    tokens = tokenizer.encode(text, 1000)
    pieces = Pieces(tokenizer, [])
    made = [pieces.add(token) for token in tokens]
    assert "".join(made) == text == tokenizer.decode(tokens)
    assert all("\ufffd" not in piece for piece in made)


def test_a_prompt_of_10_mb_is_refused_before_it_is_converted(folder):
    tokenizer = Tokenizer.load(folder)
    tokenizer.backend = None  # would fail
    with pytest.raises(RequestRefused, match="at most 1024 fit"):
        tokenizer.encode("a" * 10_000_000, 1024)


def test_the_folders_template_is_rendered(folder):
    template = load_template(folder)
    assert template is not None
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert template.render(CHAT) == (
        f"<|im_start|>user\n{CHAT[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert '{"type": "function", "function": {"name": "f"}}' in template.render(CHAT, tools)


GROWN = "{% set n0 = namespace(a='x') %}" + "".join(
    f"{{% set n{i + 1} = namespace(a=n{i}, b=n{i}) %}}" for i in range(40)
)
"""Each of the namespaces is written out twice in the next one."""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "1 s"),
        ("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", "recursion"),
        (GROWN + "{{ n40 }}", "stopped: it"),
        ("{{ '{:>3000000000}'.format(1) }}", "512 MiB"),
        ("{{ lipsum(n=1000000) }}", "stopped: it"),
        ("{{ 'x' * 10**9 }}", "512 MiB"),
        ("{{ 'x' | center(10**9) }}", "512 MiB"),
        ("{{ messages[0].role | center(10**9) }}", "512 MiB"),
        ("{{ 'x'.ljust(1000000000) }}", "512 MiB"),
        ("{{ '%1000000000d' % messages | length }}", "512 MiB"),
        ("{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}"
         "{% endfor %}", "stopped: it"),
        ("{{ messages[0].role * 5000000 }}", "4194304 characters"),
        ("{{ 9 ** (9 ** 9) }}", "1 s"),
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages.__class__.__base__.__subclasses__() }}", "cannot render|unsafe"),
        ("{{ 1 // 0 }}", "cannot render"),
    ],
)  # fmt: skip
def test_a_hostile_template_is_stopped_in_a_line(source, message):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((RequestRefused, ModelRefused), match=message) as caught:
        FolderTemplate(source, {}).render(CHAT)
    assert "\n" not in str(caught.value)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, "KiB: only the template's own process grew"


def test_a_template_that_was_stopped_renders_the_next_chat():
    template = FolderTemplate(
        "{% if messages | length > 1 %}{{ messages[0].role | center(10**9) }}"
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        "{% endif %}{{ bos_token }}{{ messages[0].content }}",
        {"bos_token": "<s>"},
    )
    assert template.render(CHAT) == f"<s>{CHAT[0]['content']}"
    for _ in range(2):
        with pytest.raises(RequestRefused, match="stopped"):
            template.render(CHAT * 2)
        assert template.render(CHAT) == f"<s>{CHAT[0]['content']}"


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{", "x" * 2**19, "{% include 'a' %}{% x %}", "{{ 9 ** (9 ** 9) }}"],
)
def test_a_template_that_is_none_is_refused(source):
    with pytest.raises(ModelRefused):
        FolderTemplate(source, {})


@pytest.mark.parametrize("content", ["", "{}", "nonsense", '{"model": {"type": "BPE"}}'])
def test_a_damaged_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelRefused, match=r"tokenizer\.json is damaged"):
        Tokenizer.load(tmp_path)
