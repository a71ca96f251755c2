"""Tell in which of the four languages a request is written, by its commonest words."""

from __future__ import annotations

import re

from gpudeck.language.languages import LANGUAGES, Language

_SAID: dict[Language, str] = {
    "en": """
        the a an is are was were did does do has have how what which who why when where it its
        my me of on for to with and that this these those please can could would show tell give
        run any all free memory up not if at yesterday today now hey thanks there been
        since from by many much long start stop again wait waiting hot queue
    """,
    "de": """
        der die das den dem des ein eine einen einem ist sind war waren hat haben wird wie was
        welche welcher welches wer warum wieso wann wo es er sie mein meine meinen mir mich ich
        von auf für fuer zu mit und dass diese dieser bitte kann kannst könntest koennte zeig
        zeige sag gib mach nicht kein keine wenn im am seit gestern heute jetzt gerade noch mal
        doch auch lauf läuft laeuft warm heiss heiß viel viele lange warteschlange karte karten
        grad nur alle allen speicher ab um uhr brich halte starte stoppe setze bis gegen
    """,
    "fr": """
        le la les l un une des du de est sont était a ont quel quelle quels quelles qui que
        pourquoi quand où comment il elle mon ma mes moi je j sur pour avec et ce cette ces
        combien peux peut pourrais montre dis donne lance arrête annule ne pas si au aux depuis
        hier aujourd hui maintenant encore tous toutes carte cartes mémoire tourne tâche tâches
        file s t-il qu c d fait tout jusqu sauf annuler relance mets
    """,
    "es": """
        el la los las un una unos del de es son está están fue hay qué que cuál cuáles quién
        cuándo dónde por cómo cuánto cuánta cuántos cuántas mi mis me yo en para con y este esta
        estos puede puedes podrías muestra dime dame lanza cancela no si al desde ayer hoy ahora
        todavía todos todas tarjeta tarjetas memoria corre trabajo trabajos tarea cola se lo su
        cual cuanto cuanta como estan cuantos mas más hasta salvo cancelar pon reintenta
    """,
}
_WORDS = {name: frozenset(said.split()) for name, said in _SAID.items()}
_LETTERS: dict[Language, str] = {"de": "äöüß", "fr": "àâèêëîïôûùçœ", "es": "ñ¿¡áíóú"}
"""Letters that only one of the languages has."""


def language_of(request: str, default: Language) -> Language:
    """Return the language of a request; `default` if its words do not tell."""
    low = request.casefold()
    words = re.findall(r"[^\W\d_]+", low)
    score = {
        name: sum(word in _WORDS[name] for word in words)
        + 2 * sum(letter in low for letter in _LETTERS.get(name, ""))
        for name in LANGUAGES
    }
    best = max(score.values())
    found = [name for name, value in score.items() if value == best]
    return found[0] if best and len(found) == 1 else default
