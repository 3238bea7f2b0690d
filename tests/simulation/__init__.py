"""A deterministic simulation of the ZooKeeper lock protocol: the backend's own code over a model of ZooKeeper.

One seed decides everything: the clients' requests, the order of their steps, lost replies, and deaths. Read
:mod:`.world` first; run ``python -m tests.simulation --help``.
"""
