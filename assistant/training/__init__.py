"""How the assistant's own small model is made: data, training, evaluation and its card. Not imported by the app.

python -m assistant.training.data FOLDER
python -m assistant.training.train FOLDER --device cuda --minutes 8
python -m assistant.training.evaluate FOLDER
python -m assistant.training.card FOLDER
"""
