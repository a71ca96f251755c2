"""Train language models: data, model, loop and checkpoints.

A run is described by `Settings`, and everything else follows from them: the order of the data is a
function of seed and step, so that a run which was killed continues to the same weights, to the last
bit. `gpudeck.accel.training.loop` is the place to begin reading.
"""
