"""Convert text to tokens and back as RWKV's World models do, and write chats for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.tokenizer import END
from gpudeck.accel.rwkv.tokenizer import Tokenizer as World
from gpudeck.accel.serving.errors import ModelRefused, TooLong
from gpudeck.accel.serving.template import ChatTemplate
from gpudeck.accel.serving.tokens import Tokenizer

_LONGEST = 128
"""Bytes of the longest token of the World vocabulary."""
_SOURCE = """\
{%- if tools -%}
System: You may call these functions. To call one, answer with nothing but JSON, such as \
{"name": "the function", "arguments": {}}.
{% for tool in tools %}{{ tool.function | tojson }}{{ '\\n' }}{% endfor %}{{ '\\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- set text = message.content | replace('\\r\\n', '\\n') | trim -%}
{%- if message.role == 'system' %}System: {% elif message.role == 'user' %}User: \
{% elif message.role == 'assistant' %}Assistant: \
{% for call in message.tool_calls or [] %}{{ call.function | tojson }}\
{{ '' if loop.last and not text else '\\n' }}{% endfor %}\
{% elif message.role == 'tool' %}System: The function returned: {% else -%}
{{ raise_exception('RWKV reads messages of system, user, assistant and tool') }}
{%- endif -%}
{{ text.split('\\n\\n') | select | join('\\n') }}{{ '\\n\\n' }}
{%- endfor -%}
Assistant:"""
STOP = "\n\nUser"
"""The text with which the model would go on to write the user's part."""


class WorldTokenizer:
    """Convert text to tokens and back; a model's folder has the vocabulary."""

    def __init__(self, vocabulary: World) -> None:
        """Take a loaded vocabulary."""
        self.vocabulary = vocabulary

    @classmethod
    def load(cls, folder: Path) -> WorldTokenizer:
        """Load the vocabulary in a model's folder. Raises ModelRefused."""
        try:
            return cls(World.load(folder))
        except ModelError as e:
            raise ModelRefused(str(e)) from e

    def encode(self, text: str, most: int, *, special: bool = True) -> list[int]:
        """Return the tokens of a text, which has no special ones. Raises TooLong."""
        del special
        least = len(text) // _LONGEST
        if least <= most:
            tokens = self.vocabulary.encode(text)
            if len(tokens) <= most:
                return tokens
            least = len(tokens)
        raise TooLong(f"the prompt has {least} tokens or more; at most {most} fit. Shorten it")

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self.vocabulary.decode(tokens).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> str:
        """Return a token as text; bytes that are no character become U+FFFD."""
        return self.decode([token])

    def pieces(self, prompt: Sequence[int]) -> WorldPieces:
        """Return what converts the answer to a prompt."""
        del prompt
        return WorldPieces(self.vocabulary)

    def grammar_source(self, ends: Sequence[int], size: int) -> Any:
        """Return the vocabulary in a form that llguidance reads."""
        from llguidance import TokenizerWrapper

        return TokenizerWrapper(_Source(self.vocabulary, ends[0], size))


Vocabulary = Tokenizer | WorldTokenizer
"""Converts text to tokens and back, by whatever a model's folder holds."""


class WorldPieces:
    """Convert an answer's tokens to text one by one; part of a character is held back."""

    def __init__(self, vocabulary: World) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Return the text that is complete with this token."""
        return self._decoder.decode(self._vocabulary.piece(token))


class _Source:
    """Show the vocabulary as llguidance's wrapper of tokenizers expects it."""

    bos_token_id = None

    def __init__(self, vocabulary: World, end: int, size: int) -> None:
        # A model has more logits than there are tokens; no grammar allows special ones by itself.
        unused = range(vocabulary.size, size)
        self.eos_token_id, self.special_token_ids = end, [END, *unused]
        self.tokens = [vocabulary.piece(token) for token in range(vocabulary.size)]
        self.tokens += [b"<|unused %d|>" % token for token in unused]
        self.tokens[END] = b"<|end|>"
        self._vocabulary = vocabulary

    def __call__(self, text: str | bytes) -> list[int]:
        """Return the tokens of a text."""
        return self._vocabulary.encode(text)


def world_template() -> ChatTemplate:
    """Return the form of chats that RWKV's World models were trained on.

    No message contains an empty line, so that none can begin another one.
    """
    return ChatTemplate(_SOURCE, {})
