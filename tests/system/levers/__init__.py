"""The levers for people on call, on tasks that wait in a real Airflow: on ZooKeeper, and on PostgreSQL.

``make test-ui`` runs this folder. With ``PICTURES=FOLDER`` it takes a picture of each lever on the page.
"""
