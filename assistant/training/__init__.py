"""Make the assistant's own small model: data, training, evaluation and its card.

None of this is in the wheel, and nothing that ships imports it.

python -m assistant.training.data FOLDER
python -m assistant.training.train FOLDER --device cuda --minutes 8
python -m assistant.training.evaluate FOLDER
python -m assistant.training.card FOLDER
"""
