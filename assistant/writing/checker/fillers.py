"""Tell words that judge or connect from words that claim: they are skipped.

A degree or a manner (`practically`, `very`, `heavy`) changes no number, name, state, order in time
or denial. Adverbs are known by their end; those of time, number and denial are listed, and refuse.
"""

from __future__ import annotations

from gpudeck.assistant.writing.checker.lexicon import words

_CLAIMING = words(
    "hardly barely scarcely only early previously formerly initially finally firstly secondly "
    "lastly immediately instantly lately newly solely exclusively partly partially jointly "
    "separately simultaneously concurrently alternately wrongly incorrectly falsely supposedly "
    "allegedly rarely seldom frequently repeatedly constantly permanently occasionally regularly "
    "temporarily daily hourly weekly nightly monthly yearly singly doubly ultimately eventually "
    "subsequently consequently accordingly manually automatically remotely locally externally "
    "internally unsuccessfully invalidly reply apply supply rely comply multiply assembly anomaly "
    "orderly likely unlikely family ally fly"
)
"""Words that end like adverbs of degree and claim something, or are none."""
_JUDGING = words(
    "seen night overnight evening morning assigned older newer burst example instance "
    "historical hard typical usual contains past soon shortly simply activity margin way "
    "amount picked selected ever estimated approximate actual entire quiet present target "
    "very quite extremely fairly pretty rather heavy light moderate significant considerable "
    "substantial notable noticeable remarkable big large small good great nice comfortable tiny "
    "modest strong intense plenty ample lots bit lot mere whopping impressive sizeable decent "
    "solid respectable strict brief long short tight "
    # connections
    "despite regarding concerning via across among between onto into along amid besides per "
    "within indeed thanks overall summary sum total totals totalling totaling leaving leaves leave "
    "bringing brings currently presently seems appears looks seem appear continues continue "
    "continued happens happened occurred occurs means meaning namely particular general well "
    # what people call these things
    "server node host box rig machine cluster workload workloads task tasks program programs "
    "process processes hardware nvidia request snapshot status figure "
    "situation load loads draw consumption usage level levels reading slot slots spot place "
    "room capacity headroom budget "
    # doing
    "doing done making made make keeps keeping turning using needing requiring requires required "
    "getting putting taking taken sitting standing coming working work works worked burning burns "
    "crunching processing handled handling carrying showing shows seeing see sees shown"
)
"""Other words that claim nothing by themselves."""


def is_filler(word: str) -> bool:
    """Return True for a word that can be left out without a claim being lost."""
    adverb = word.endswith("ly") and len(word) > 4 and not word.startswith(("un", "in", "non"))
    return word in _JUDGING or (adverb and word not in _CLAIMING)
