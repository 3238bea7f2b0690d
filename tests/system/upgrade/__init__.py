"""Two versions side by side: wheels of this version and of a next one, run as processes on one lock store."""
