"""The triggers that wait for locks, and the keeper, which renews leases in the triggerer."""
