"""The page Cards says what the backends refuse, what is compiled and what was measured."""

from tests.cards import CARDS, COLUMNS, PAGE, filled


def test_the_page_holds_what_the_code_says():
    text = PAGE.read_text()
    assert text.count("<!-- figures ") == len(COLUMNS)
    assert all(f"| {card} |" in text for card in CARDS)
    assert text == filled(text), "run: python -m tests.cards"
