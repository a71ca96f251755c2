"""Hold the parts of which the regular expressions of phrases are made."""

STANDS = r"(?:is|are|stays|remains|does|do|sits?|stands?|lies?|has|have)"
SO_FAR = r"(?: (?:still|now|currently|gone|been|just))*"
BE = r"(?:is|are|was|were)"
CANNOT = r"(?:can ?not|could not|will not|does not|do not|can't|won't|must not)"
NEVER = r"(?:never|not|did not|didn't)(?: once)?"
NEARLY = (
    r"(?:close to|near|(?:(?:nearly|almost|practically|virtually|right|running) )*at"
    r"|(?:nearly|almost) reach(?:es|ed)?)"
)
V = r"\d[\d.]* [^\s,;]+"
COUNT = r"(?P<n>the|all|both|other|two|three|four|five|six|seven|eight)"
EACH = r"(?P<n>a|one|no|each|every|another|any|neither)"
