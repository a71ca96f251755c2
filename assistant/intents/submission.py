"""Read an order for a new job: its command, and what is said about the job as options.

Every word is a part of the command, of an option or of a courtesy. If another word is left, or it
is open where the command ends, there is no order, and the person is told which words these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from gpudeck.accel.workloads import catalog
from gpudeck.assistant.intents.option_phrases import begins_option, find_options
from gpudeck.assistant.intents.tokens import normalized, unaccented
from gpudeck.assistant.intents.workload_phrases import read_parameters
from gpudeck.assistant.query.table import WORKLOADS

_INTERPRETER = (
    r"(?:python3?(?:\.\d+)?|bash|sh|torchrun|accelerate|deepspeed|mpirun|nohup|julia|docker|podman"
    r"|ollama|uv|make|Rscript|jupyter|vllm|\.\.?/\S+|/\S+/\S+|~/\S+|\S+\.(?:py|sh|jl|R))"
)
_PROGRAM = re.compile(rf"(?<!\S){_INTERPRETER}(?=[\s,;]|$)")
_QUOTED = re.compile(
    r"(?<!\w)(?:`([^`\n]+)`|\"([^\"\n]+)\"|'([^'\n]+)'|“([^”\n]+)”|„([^“\n]+)“|«([^»\n]+)»)"
    r"(?!\w)"
)
_NAMES = re.compile(r"(?i)(?:nam\w*|call\w*|nom\w*|llamad\w|gr[ou]\w*|tag)\s*$")
"""Words behind which a quoted text is a name."""
_SCRIPT = re.compile(r".*\.(?:py|sh|jl|R|ipynb)$|.*/.*")
_MARKED = re.compile(r"[-=/._\\:{}@0-9]")
"""What makes a word an argument, and no word of a sentence."""
_SUBCOMMANDS = frozenset({"uv", "docker", "podman", "make", "ollama", "accelerate", "jupyter",
                          "vllm"})  # fmt: skip
"""Programs whose first words are their own."""
_WORD = re.compile(r"(?:\"[^\"]*\"|'[^']*'|\S)+")
_MEASURE = re.compile(r"\d+(?:[.,]\d+)?(?:h|hrs?|min|m|s|d|[kmgt]i?[bo]|gpus?|x|%)?", re.IGNORECASE)
_ENDS = ",;"
_COURTESIES = """
a an the my new this it me for us job jobs command script program workload task and also but with
as up of please pls plz thanks thank thx now just kindly then ok okay so hey hi hello well you can
could would will i want to need like d let s go ahead get start add put in queue
bitte danke jetzt mal doch und auch aber ein eine einen neuen neue neues den die das der als auftrag
befehl skript programm mir du kannst konntest wurdest ich mochte will gern gerne mit warteschlange
stp svp pls hein
s il te plait vous merci maintenant et aussi mais un une le la les nouveau nouvelle comme commande
programme tache moi tu peux pourrais je veux voudrais avec dans file
por favor gracias ahora y tambien pero uno una el los nuevo nueva como trabajo comando tarea
programa puedes podrias quiero quisiera con en cola que lo
run queue submit launch execute enqueue schedule benchmark fire off up kick begin spawn
starte starten start ausfuhren fuhre fuhr aus reiche ein schick ab stell reih einreihen plane
los leg
lance lancer lancez soumets demarre execute ajoute fais tourner mets
lanza lanzar ejecuta ejecutar encola corre correr pon anade inicia arranca envia manda a
lanzalo ejecutalo encolalo correlo mandalo
is ist est mach mache dem einem neuer
need would like able please kindly on as job konnte konnten wurde wurden gerne lass laufen lauf
pouvez pourriez aimerais vais usted podria necesito gustaria mi
"""
_COURTESY = frozenset(_COURTESIES.split())


class Submission(NamedTuple):
    """Hold the command of a new job, its options, and the words that are neither."""

    command: str
    options: dict[str, str]
    unread: tuple[str, ...] = ()
    workload: str = ""
    """The workload that is named in place of a command."""
    params: Mapping[str, str] = MappingProxyType({})


def read_submission(
    request: str, jobs: tuple[str, ...], now: float, program: str = ""
) -> Submission:
    """Return the parts of an order for a new job.

    Args:
        request: The order as it was typed.
        jobs: The names of jobs, behind which the new one may wait.
        now: Seconds since the epoch.
        program: The word that begins the command, if it is no known interpreter.
    """
    before, command, behind = _parts(request, jobs, program)
    workload = "" if command else _named_workload(request)
    params: Mapping[str, str] = MappingProxyType({})
    if workload:
        params, request = read_parameters(catalog.find(workload), request)
    found = find_options(f"{before} , {behind}" if command else request, jobs, now)
    left = re.findall(r"[^\s,;.!?:()]+", found.rest)
    of_workload = {workload, *workload.split("_")}
    words = [word for word in _unordered(left) if word.casefold() not in of_workload]
    return Submission(command, dict(found.options), tuple(words), workload, params)


def _unordered(words: list[str]) -> Iterator[str]:
    """Yield the words that are neither courtesies nor words for submitting a job."""
    for word in words:
        if not _is_courtesy(unaccented(normalized(word.replace("’", "'").strip("'")))):
            yield word


def _parts(request: str, jobs: tuple[str, ...], program: str) -> tuple[str, str, str]:
    """Return what is before the command, the command, and what is behind it."""
    found = _PROGRAM.search(request)
    for quoted in _QUOTED.finditer(request):
        text = next(filter(None, quoted.groups())).strip()
        inside = found is not None and found.start() < quoted.start()
        if not inside and not _NAMES.search(request[: quoted.start()]):
            return request[: quoted.start()], text, request[quoted.end() :]
    start = found.start() if found else request.find(program) if program else -1
    if start < 0:
        return request, "", ""
    end = _end(request, start, jobs)
    return request[:start], request[start:end].strip(" ,;"), request[end:]


def _end(request: str, start: int, jobs: tuple[str, ...]) -> int:
    """Return where an unquoted command ends: before an option or an ordinary word."""
    end, flag, script = start, False, False
    own = re.match(r"\S+", request[start:])[0] in _SUBCOMMANDS  # type: ignore[index]
    for word in _WORD.finditer(request[start:]):
        place = start + word.start()
        text = word[0].rstrip(_ENDS)
        if end > start and flag and (
            text.casefold() in _COURTESY
            or (not text[0].isdigit() and begins_option(request[place:], jobs))
        ):  # fmt: skip
            return end
        if end > start and not flag:
            if begins_option(request[place:], jobs) or _MEASURE.fullmatch(text):
                return end
            if not _MARKED.search(text) and (script or (_is_word(text) and not own)):
                return end
            own = own and not text.startswith("-")
        script = script or bool(_SCRIPT.match(text)) or flag
        flag = text.startswith("-") and "=" not in text
        end = place + len(text)
        if text != word[0]:
            return end
    return len(request.rstrip(" .!?")) if end == len(request.rstrip()) else end


def _is_word(text: str) -> bool:
    return _is_courtesy(unaccented(normalized(text.strip(".!?"))))


def _is_courtesy(norm: str) -> bool:
    return all(part in _COURTESY for part in re.split("['-]", norm))


def _named_workload(request: str) -> str:
    """Return the workload that words name, or ""; a name of two words may be written apart."""
    words = re.findall(r"[\w]+", request.casefold())
    pairs = [f"{first}_{second}" for first, second in pairwise(words)]
    return next((word for word in (*pairs, *words) if word in WORKLOADS), "")
