"""Ask a person to decide on a proposal, in the language in which it was made."""

from __future__ import annotations

from gpudeck.app.cli.output import print_line, prompt
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.language.languages import Language
from gpudeck.language.rendering import render
from gpudeck.language.text import Message, Text, phrase

NO_TERMINAL = phrase("Nothing was done, because there is no terminal to ask for confirmation on.")


def ask_decision(proposal: Proposal) -> Decision | None:
    """Ask whether a person's own order shall be carried out; None: it shall not."""
    yes, no = _words(proposal.language)
    accept = render(proposal.buttons.accept, proposal.language)
    typed = prompt(f"{accept}? [{yes[0]}/{no[0].upper()}/never]")
    decision = _read(typed, proposal.language)
    return None if decision == "no" else decision


def ask_about_program(proposal: Proposal) -> Decision | None:
    """Ask whether the order of a program shall be carried out; None: that is decided later."""
    yes, no = _words(proposal.language)
    question = phrase(
        "{what}? [{yes}/{no}/never, or Enter to decide later]",
        what=proposal.buttons.accept,
        yes=yes[0],
        no=no[0],
    )
    return _read(prompt(render(question, proposal.language)), proposal.language)


def print_in(language: Language, text: Text) -> None:
    """Print a text as one line."""
    print_line(render(text, language))


def print_row(language: Language, caption: Message, value: Message) -> None:
    """Print a value with its caption."""
    print_in(language, phrase("{caption}: {value}", caption=caption, value=value))


def _read(typed: str, language: Language) -> Decision | None:
    """Return what was decided, by a word or its first letter, also in English."""
    yes, no = _words(language)
    decisions: dict[str, Decision] = {
        "n": "no", "no": "no", no[0]: "no", no: "no",
        "y": "once", "yes": "once", yes[0]: "once", yes: "once",
        "never": "never",
    }  # fmt: skip
    return decisions.get(typed)


def _words(language: Language) -> tuple[str, str]:
    return render(phrase("yes"), language), render(phrase("no"), language)
