"""The model as an author: prompts, generation, checkpoints, and the search for likely texts."""
