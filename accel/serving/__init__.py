"""Serve a language model: its weights, the paged cache of keys and values, the scheduler that
batches requests, and the sampler.

Begin with `gpudeck.accel.serving.engine.Engine`. `python -m gpudeck.accel.serving.tiny FOLDER`
makes a tiny model to try it with.
"""
