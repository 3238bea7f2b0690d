"""Jobs that outlive the task that has submitted them."""
