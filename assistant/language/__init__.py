"""Answer in the language of the question: English, German, French or Spanish.

The English texts are in the code and are the keys of the catalogues (gettext). Babel knows the
plurals, numbers, dates and lists of each language.
"""
