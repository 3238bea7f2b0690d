"""A deterministic simulation of the ZooKeeper lock protocol: the backend's own code over a model of ZooKeeper.

One seed decides everything: what the clients want, whose request is next, which replies are lost, who dies. Read
:mod:`.world` first; run ``python -m tests.simulation --help``.
"""
