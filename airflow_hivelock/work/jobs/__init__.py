"""Jobs that can outlive the task that submitted them."""
