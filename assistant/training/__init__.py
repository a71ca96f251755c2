"""How the assistant's own small model is made: data, vocabulary, training and evaluation. Not imported by the app.

python -m assistant.training.train FOLDER --device cuda --minutes 25
python -m assistant.training.evaluate FOLDER
"""
