"""The lock statements, run over the memory backend."""
