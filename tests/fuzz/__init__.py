"""Hostile input: whatever a stranger types, stores or hands on is answered or refused, in time, and breaks nothing else.

A target takes bytes. Hypothesis makes them up by strategies that know the form of each input, atheris (libFuzzer) out of
the corpus by coverage; ``corpus/<target>/`` keeps what once broke something, and one example of each kind.
"""
