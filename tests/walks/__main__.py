"""Print the ways as the documents show them: `python -m tests.walks`."""

from tests.walks.table import WALKS

print("\n\n".join(walk.render(walk.run()) for walk in WALKS))
