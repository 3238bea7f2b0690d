"""``make test-upgrade``: this version and a next one at once, on each lock store, and in a real Airflow.

At the end it prints the table of docs/upgrade.md; with all stores and ``--full``, the table is written there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.support import documented
from tests.support.servers import MariaDBServer, PostgresServer, ZooKeeperServer
from tests.support.servers.mariadb import PROGRAM
from tests.system.upgrade import real, scenes
from tests.system.upgrade.table import AIRFLOW, NAMES, table
from tests.system.upgrade.wheels import built

STORES = (*(store for store in NAMES if store != "mariadb" or PROGRAM), AIRFLOW)


def play(store: str, url: str, targets: dict[str, Path], folder: Path, seconds: float, seed: int) -> list[scenes.Row]:
    """All scenes on one store; return the rows of the table."""
    folder.mkdir()
    site = scenes.Site(store, url, targets, folder)
    try:
        scenes.first_connection(site, "0.1.0", "0.2.0")
        scenes.beside(site, "0.1.0", "0.2.0")
        scenes.beside(site, "0.2.0", "0.1.0")
        scenes.crowd(site, ("0.1.0", "0.2.0"), seconds, seed)
        scenes.too_old(site, "0.1.0", "0.3.0")
    finally:
        site.close()
    return site.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long workers are killed, on each store")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--full", action="store_true", help="write the table into docs/upgrade.md")
    parser.add_argument("stores", nargs="*", default=STORES)
    given = parser.parse_args()
    if given.full and set(given.stores) != {*NAMES, AIRFLOW}:
        parser.error(f"--full needs all of {', '.join(NAMES)}; make test-mysql installs MariaDB")
    if strange := set(given.stores) - {*NAMES, AIRFLOW}:
        parser.error(f"there is no {', '.join(strange)}: give some of {', '.join(NAMES)}, {AIRFLOW}")
    began, rows = time.monotonic(), list[scenes.Row]()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hivelock-upgrade-") as temporary:
        folder = Path(temporary)
        targets = built(folder)
        print(f"built {', '.join(targets)}: {time.monotonic() - began:.0f} s", flush=True)
        for store in given.stores:
            if store == "zookeeper":
                with ZooKeeperServer(folder / "zk") as server:
                    url = f"zookeeper://{server.hosts}/hive?timeout_s=4"
                    found = play(store, url, targets, folder / store, given.seconds, given.seed)
            elif store == "postgresql":
                with PostgresServer(folder / "pg") as postgres:
                    found = play(store, postgres.url, targets, folder / store, given.seconds, given.seed)
            elif store == AIRFLOW:
                with PostgresServer(folder / "pg-of-airflow") as postgres:
                    found = real.scenes(postgres.url, targets, folder / store)
            elif store == "mariadb":
                with MariaDBServer(folder / "my") as mariadb:
                    found = play(store, mariadb.url, targets, folder / store, given.seconds, given.seed)
            else:
                url = f"sqlite:///{folder}/leases.db"
                found = play(store, url, targets, folder / store, given.seconds, given.seed)
            rows += found
            print(f"{store}: {len(found)} rows, {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n{table(rows)}")
    if given.full:
        documented.write("upgrade.md", "make test-upgrade FULL=1", table(rows))


if __name__ == "__main__":
    main()
