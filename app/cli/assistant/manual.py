"""Print the manual, which comes with the program."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.assistant.markdown import print_markdown
from gpudeck.app.cli.output import print_table
from gpudeck.app.shell.manual_pages import ManualPage, manual_pages, section_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import NotFound


def add_arguments(parser: ArgumentParser) -> None:
    """Add the page and its section."""
    parser.add_argument("page", nargs="?", metavar="PAGE", help="its name (default: list them)")
    parser.add_argument("section", nargs="*", metavar="SECTION", help="the heading of one section")


def run(args: Namespace) -> int:
    """Print a page or one of its sections; without a page, list the pages."""
    pages = {page.name: page for page in manual_pages()}
    if args.page is None:
        print_table([("PAGE", "TITLE"), *((page.name, page.title) for page in pages.values())])
        return 0
    if args.page not in pages:
        raise NotFound(
            phrase("the manual has no page {name}. See: gpudeck manual", name=repr(args.page))
        )
    print_markdown(_text(pages[args.page], " ".join(args.section)))
    return 0


def _text(page: ManualPage, heading: str) -> str:
    """Return a page, or the section with a heading. Raises NotFound."""
    text = section_of(page.text, heading) if heading else page.text
    if not text:
        raise NotFound(
            phrase(
                "the page {page} has no section {name}. See: gpudeck manual {page}",
                page=page.name,
                name=repr(heading),
            )
        )
    return text
