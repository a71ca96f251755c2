"""The shipped model is whole and has a card."""

from gpudeck.assistant.library import describe, model_list
from gpudeck.scheduler.protocol import paths


def test_the_shipped_model_is_on_the_list_with_a_card() -> None:
    (model,) = model_list.listed_models()
    assert (model.name, model.problem, model.dtype) == ("rwkv7-deck-13m", "", "F16")
    assert 10e6 < model.parameters < 20e6
    assert describe.describe(model.path) == model
    card = (paths.shipped_model() / "README.md").read_text()
    assert all(part in card for part in ("## Data", "## Training", "## Evaluation", "## Limits"))
