"""Read requests to find attention in a person's code: "find attention in ~/proj".

Each form must fit from the first word to the last, so that no word is dropped; the path is the only
part that is free: one word, or anything between quotes. Nothing looks at the disk here.
"""

from __future__ import annotations

import re

from gpudeck.assistant.query.request import Query
from gpudeck.language.languages import Language

_ATTENTION = r"(?:the |my |any |slow |hand-?written )*attention(?: layers?| code| modules?)?"
_FORMS: dict[Language, tuple[str, ...]] = {
    "en": (
        rf"(?:find|look for|search for|show me|show|list|detect) {_ATTENTION}{{in}}",
        r"(?:search|scan|check|analy[sz]e|look through|go through) (?P<a>{path}|{own}) for"
        rf" {_ATTENTION}",
        rf"(?:speed up|accelerate|optimi[sz]e|improve) (?:{_ATTENTION}|{{own}}){{in}}",
        rf"make (?:{_ATTENTION}|{{own}}){{in}} (?:run )?(?:faster|quicker)",
        rf"where is (?:there )?{_ATTENTION}{{in}}",
        rf"(?:how can i|can i) (?:make (?:{_ATTENTION}|{{own}}) faster|speed up {{own}}){{in}}",
        rf"(?:inject|link)(?: the)?(?: fast| faster| accelerated)? {_ATTENTION}{{in}}",
    ),
    "de": (
        r"(?:finde|such|suche|zeig mir|zeige mir|zeig|zeige|liste)(?: nach)?(?: die| meine)?"
        r" (?:attention|aufmerksamkeit)(?:s?-?schichten|-code)?{in}(?: auf)?",
        r"(?:durchsuche|durchsuch|prüfe|prüf|analysiere|untersuche|scanne) (?P<a>{path}|{own})"
        r" (?:nach|auf) (?:attention|aufmerksamkeit)",
        r"(?:beschleunige|beschleunig|optimiere|optimier|verbessere)"
        r" (?:(?:die |meine )?attention|{own}){in}",
        r"mach(?:e)? (?:(?:die |meine )?attention|{own}){in} schneller",
        r"wie (?:mache|mach|beschleunige|kann) ich (?:(?:die |meine )?attention|{own}){in}"
        r"(?: schneller(?: machen)?| beschleunigen)?",
        r"wo (?:ist|gibt es|steckt)(?: die)? attention{in}",
    ),
    "fr": (
        r"(?:trouve|trouver|cherche|chercher|montre-moi|montre moi|montre|liste)"
        r" (?:les couches d['’ ]|l['’ ]|de l['’ ]|d['’ ])?attention{in}",
        r"(?:analyse|parcours|fouille|examine) (?P<a>{path}|{own}) (?:pour|à la recherche d['’ ]|"
        r"pour trouver )(?: ?l['’ ])?attention",
        r"(?:accélère|accelere|accélérer|optimise|optimiser|améliore)"
        r" (?:l['’ ]attention|{own}){in}",
        r"rends (?:l['’ ]attention|{own}){in} plus rapide",
        r"(?:comment )?(?:accélérer|rendre) (?:l['’ ]attention|{own}){in}(?: plus rapide)?",
        r"où (?:est|se trouve) l['’ ]attention{in}",
    ),
    "es": (
        r"(?:encuentra|encontrar|busca|buscar|muéstrame|muestrame|muestra|lista)"
        r"(?: la| las capas de)? (?:atención|atencion|attention){in}",
        r"(?:analiza|revisa|examina|escanea) (?P<a>{path}|{own}) (?:en busca de|buscando|para"
        r" encontrar)(?: la)? (?:atención|atencion|attention)",
        r"(?:acelera|acelerar|optimiza|optimizar|mejora)"
        r" (?:la (?:atención|atencion|attention)|{own}){in}",
        r"haz (?:que )?(?:la (?:atención|atencion)|{own}){in} (?:sea |vaya )?más rápid[oa]",
        r"(?:cómo|como) (?:acelero|puedo acelerar|hago) (?:la (?:atención|atencion)|{own}){in}"
        r"(?: más rápid[oa])?",
        r"(?:dónde|donde) está la (?:atención|atencion){in}",
    ),
}
_OWN: dict[Language, str] = {
    "en": r"(?:my|the|our|this) (?:pytorch |torch |python |own |deep learning )?"
    r"(?:training|code|model|models|transformer|network|project|script|program|run|net)"
    r"(?: code| script| run| loop)?",
    "de": r"(?:mein|meine|meinen|das|den|unser|unsere|dieses) (?:pytorch-?|eigenes? |eigener? )?"
    r"(?:training|code|modell|modelle|transformer|netz|projekt|skript|script|programm)",
    "fr": r"(?:mon|ma|mes|l['’]|le|notre|ce) ?(?:entraînement|entrainement|code|modèle|modele|"
    r"modèles|transformer|réseau|projet|script|programme|apprentissage)(?: pytorch)?",
    "es": r"(?:mi|mis|el|nuestro|este) (?:entrenamiento|código|codigo|modelo|modelos|transformer|"
    r"red|proyecto|script|programa)(?: de pytorch| pytorch)?",
}
_IN: dict[Language, str] = {
    "en": "in|inside|of|from|under|below|within",
    "de": "in|im|aus|unter|von",
    "fr": "dans|de|du|sous",
    "es": "en|de|del|dentro de|bajo",
}
_FOLDER: dict[Language, str] = {
    "en": "(?:the |my )?(?:folder|directory|file|repo|repository|project)",
    "de": "(?:dem |den |der |meinem )?(?:ordner|verzeichnis|datei|repo|projekt)",
    "fr": "(?:le |la |mon )?(?:dossier|répertoire|fichier|dépôt|projet)",
    "es": "(?:la |el |mi )?(?:carpeta|directorio|archivo|fichero|repositorio|proyecto)",
}
_POLITE = re.compile(
    r"(?i)^(?:please|can you|could you|would you|i want to|i would like to|i'd like to|help me to|"
    r"help me|bitte|kannst du|könntest du|hilf mir|s['’]il te plaît|s['’]il vous plaît|peux-tu|"
    r"peux tu|pouvez-vous|aide-moi à|por favor|puedes|podrías|ayúdame a)[, ]+"
)
_THANKS = re.compile(
    r"(?i)[, ]+(?:please|for me|thanks|bitte|danke|für mich|s['’]il te plaît|s['’]il vous plaît|"
    r"merci|por favor|gracias|para mí)$"
)
_QUOTED = (
    r"\"[^\"\n]{1,1000}\"|'[^'\n]{1,1000}'|`[^`\n]{1,1000}`|“[^”\n]{1,1000}”|«[^»\n]{1,1000}»"
    r"|„[^“”\n]{1,1000}[“”]"
)
_BARE = r"\.{1,2}|~|[^\s\"'`;&|]{0,200}(?:/[^\s\"'`;&|]{0,1000}|\.py|\.ipynb)"
_PATH = f"(?:{_QUOTED}|{_BARE})"


def read_code_request(request: str) -> tuple[Query, Language] | None:
    """Return the query for attention in a folder, with the language it was asked in, or None.

    The text of the query is the path as it was typed; it is empty if no path was named.
    """
    text = request.strip()
    while (shorter := _THANKS.sub("", _POLITE.sub("", text.rstrip("?! \t")))) != text:
        text = shorter
    for language, forms in _PATTERNS.items():
        for form in forms:
            if found := form.fullmatch(text):
                named = [part for part in found.groupdict().values() if part]
                return Query("code", text=_unquoted(named[0]) if named else ""), language
    return None


def _unquoted(path: str) -> str:
    quoted = re.fullmatch(_QUOTED, path) is not None
    return path[1:-1] if quoted else path.strip()


def _compiled(language: Language) -> tuple[re.Pattern[str], ...]:
    """Fill in what may stand at each place of a form: a path, what is one's own, and where."""
    own, path = _OWN[language], _PATH
    where = (
        f"(?: (?:{_IN[language]}) (?:{own}|(?:{_FOLDER[language]} )?(?P<path>{path})"
        f"|{_FOLDER[language]} (?P<name>[^\\s\"'`]+)))?"
    )
    filled = [
        form.replace("{in}", where).replace("{path}", path).replace("{own}", own)
        for form in _FORMS[language]
    ]
    return tuple(re.compile(each.replace(f"(?P<a>{path}|{own})", f"(?:(?P<a>{path})|{own})"),
                            re.IGNORECASE) for each in filled)  # fmt: skip


_PATTERNS = {language: _compiled(language) for language in _FORMS}
