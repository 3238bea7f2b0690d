"""What needs a Kerberos realm of Debian's, or a server of its own: ``make test-security``."""
