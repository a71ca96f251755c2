"""Hold the texts that people read as values, and render them in English, German, French or Spanish.

A text is a `Text`: an English template, which is its key, with its values. It stays a value through
the daemon, the store and the wire until `render` words it for the person who reads it, so nobody
parses a sentence to translate it, and no code decides by its words. `catalogues` has one gettext
catalogue a language for the whole program; `messages` collects what they must hold.
"""
