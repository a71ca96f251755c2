"""Serve a language model: its weights, the paged cache of keys and values, the scheduler that
batches requests, and the sampler.

Begin with `accel.serving.engine.Engine`. `python -m accel.serving.tiny FOLDER` makes a tiny model
to try it with.
"""
