"""Show the window's texts in English, German, French or Spanish.

The English texts are in the code and are the keys of the catalogues (gettext), one catalogue for
each package and language in `catalogues`.
"""
