"""Read the amounts of a job that an order says in relation to what the job has."""

from __future__ import annotations

import re

from gpudeck.assistant.intents import amounts
from gpudeck.assistant.intents.moments import with_digits
from gpudeck.assistant.intents.values import Unread, Values

_IN = re.compile(r"(?i)(?<!\w)(?:in|dans|dentro de)\s*$")


class RelatedAmounts(Values):
    """Read such amounts."""

    def says_amount(self) -> bool:
        """Return whether an amount, or what has one, is said of which there can be more."""
        return any(map(self.letters, ("memory", "timeout", "duration", "begin", "count")))

    def relations(self, *, changed: bool = True) -> dict[str, str]:
        """Return what is said in relation to what a job has, as `Order.changes` holds it.

        Args:
            changed: The marks for more and less are of these amounts.
        """
        marked, lengths = self.marked("change"), self.lengths()
        if self.letters("priority") or not changed:
            marked = []  # it is the priority that is changed
        said = {"memory": self.letters("memory"), "begin": self._delays(), "timeout": lengths,
                "gpus": self.letters("count")}  # fmt: skip
        found = {}
        for option, letters in said.items():
            amount = " ".join(letters)
            times = amounts.factor(amount)
            if times is not None:
                found[option] = f"x{times:g}"
            elif amount and marked and not amounts.has_number(amount):
                found[option] = marked[0]
            elif amount and (sign := amounts.sign(self.text, letters[0], marked)):
                found[option] = f"{sign}{self._amount(option, letters[0])}"
        for option in found:
            if amounts.is_negated(self.text, said[option][0]):
                raise Unread(said[option][0])
        tags = ",".join(self.letters("tag"))
        return found | ({"tags": f"+{tags}"} if tags else {})

    def _amount(self, option: str, letters: str) -> str:
        """Return an amount of memory, of time or of GPUs. Raises Unread."""
        if option == "memory":
            return self.size_option("memory")
        said = amounts.bare(letters)
        return re.sub(r"\D.*", "", with_digits(said)) if option == "gpus" else self.length(said)

    def _delays(self) -> list[str]:
        """Return the lengths of time by which a job shall begin later or earlier."""
        said = (*self.letters("begin"), *self._said_lengths())
        return [letters for letters in said if amounts.is_of_clock(letters)]

    def lengths(self) -> list[str]:
        """Return how long a job may run."""
        others = (*self._delays(), *self.ahead())
        said = self.letters("timeout") or self.letters("duration")
        return [letters for letters in said if letters not in others]

    def ahead(self) -> list[str]:
        """Return the lengths of time from now on, as in `dans 2 heures`, in which a job begins."""
        return [letters for letters in self._said_lengths()
                if _IN.search(self.text.partition(letters)[0])]  # fmt: skip

    def _said_lengths(self) -> list[str]:
        return [*self.letters("timeout"), *self.letters("duration")]
