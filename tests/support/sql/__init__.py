"""Statements of many shapes, the tables that they are about, and what they lock."""
