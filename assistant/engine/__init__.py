"""The model as an author: generation, prompts, completions and benchmarks."""
