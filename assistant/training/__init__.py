"""Train the model that reads requests. Not in the wheel.

`phrases` and `composer` compose requests in four languages with what they mean, `examples` turns
them into tokens, and `router` trains models of several sizes on them:

    python -m gpudeck.assistant.training.router FOLDER --seconds 200 --models 4x256x1xtwice

`filler` labels composed requests as those of people are labelled, for the encoder.
"""
