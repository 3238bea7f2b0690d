"""What happens to a lock when something dies: a row an event, on a real Airflow with real processes. ``make test-airflow``.

Each row starts runs whose tasks run a writer under locks (:mod:`.writer`), does something to them (:mod:`.rows`), and is
judged afterwards (:mod:`.verdict`) by the writers' own notes and by ZooKeeper's transaction log: whether the lock was
held at every moment at which somebody wrote, when it was freed, and by whom. What did not go by itself has to go with
one run of the force-release DAG.
"""
