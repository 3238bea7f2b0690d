"""What waits for locks, and what keeps leases, in the triggerer."""
