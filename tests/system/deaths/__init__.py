"""What happens to a lock when something dies: a row for each event, on a real Airflow with real processes. ``make
test-airflow``.

Each row starts runs whose tasks run a writer under locks (:mod:`.writer`), and makes its event happen. Then
:mod:`.verdict` judges it by the writers' own notes and by ZooKeeper's transaction log: whether the lock was held at each
moment of a write, when it was freed, and by which part. One run of the force-release DAG must free the leases that are
left.
"""
