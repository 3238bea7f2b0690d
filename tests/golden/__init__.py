"""What 0.1.0 and later releases have stored and passed on, as files that every later version must read.

``python -m tests.golden 0.1.0`` writes the files of this version: a release does so once. No later change touches them.
"""
