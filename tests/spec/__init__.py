"""Checks the specification in spec/ with TLC."""
