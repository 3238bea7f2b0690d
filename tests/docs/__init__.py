"""The documents: every code block in them is run, every link leads somewhere, and the reference is what the code says."""
