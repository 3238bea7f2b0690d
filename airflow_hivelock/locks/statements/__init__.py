"""Hive's lock statements over any backend: :mod:`.session` runs them, :mod:`.parse` reads and :mod:`.render` prints."""
