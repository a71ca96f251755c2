"""Name the languages that texts are rendered in."""

from typing import Literal, get_args

Language = Literal["en", "de", "fr", "es"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
