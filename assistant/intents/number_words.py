"""The numbers from 20 to 99 in words: `twenty-one`, `einundzwanzig`, `vingt et un`."""

from __future__ import annotations

from collections.abc import Iterator

_ONES = {
    "en": "one two three four five six seven eight nine",
    "de": "ein zwei drei vier fünf sechs sieben acht neun",
    "es": "uno dos tres cuatro cinco seis siete ocho nueve",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreissig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
}
_TWENTIES = (
    "veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete veintiocho "
    "veintinueve"
)
_FRENCH_ONES = (
    "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
)
_FRENCH_TENS = {"vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60,
                "quatre-vingt": 80}  # fmt: skip


def tens_and_ones() -> Iterator[tuple[str, int]]:
    """Yield the words with their numbers, as a casefolded text has them."""
    for language, tens in _TENS.items():
        for ten, word in enumerate(tens.split(), 2):
            yield word, 10 * ten
            for one, said in enumerate(_ONES[language].split(), 1):
                number = 10 * ten + one
                forms = {"en": (f"{word}-{said}", f"{word} {said}"), "de": (f"{said}und{word}",),
                         "es": (f"{word} y {said}",)}  # fmt: skip
                yield from ((form, number) for form in forms[language])
    yield from ((word, number) for number, word in enumerate(_TWENTIES.split(), 21))
    yield "quatre-vingts", 80
    for word, start in _FRENCH_TENS.items():
        yield word, start
        most = 19 if start >= 60 else 9
        for one, said in enumerate(_FRENCH_ONES.split()[:most], 1):
            signs = ("-", " ", "-et-", " et ") if one in (1, 11) else ("-", " ")
            yield from ((f"{word}{sign}{said}", start + one) for sign in signs)
