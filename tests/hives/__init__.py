"""Every Hive that could be had, and ours: one table of what each was tried with, and what came of it."""
