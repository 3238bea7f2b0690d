"""The locks of work that runs in a cluster: real operators, hooks and triggers, real processes as jobs."""
