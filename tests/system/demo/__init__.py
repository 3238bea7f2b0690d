"""The main job, end to end, on real servers: what ``make demo`` runs."""
