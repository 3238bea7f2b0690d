"""What becomes of locks whose work runs in a cluster: real operators, hooks and triggers, real processes as jobs."""
