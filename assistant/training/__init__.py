"""Train the encoder that reads requests. Not in the wheel.

`data` holds requests of many users with their labels, `requests` reads them. `phrases` and
`composer` compose requests in four languages, which `filler` labels in the same way, to fill what
nobody wrote about. `reader` trains:

    python -m gpudeck.assistant.training.reader ENCODER DATA FILLER --out FOLDER
"""
