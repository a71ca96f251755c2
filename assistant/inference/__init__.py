"""The process that serves a language model, and its messages.

python -m gpudeck.assistant.inference
"""
