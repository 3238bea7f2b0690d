"""PostgreSQL's functions that grant and release: one round trip each.

``grant`` is what :meth:`.store.Store.grant` says. Each statement of a volatile function sees what was committed before it,
so that those after the first see all that its locks have kept out; this is so at READ COMMITTED only. The planner
believes the tables empty: OFFSET 0, and ``place + 0``, keep it from reading all the rows that were.

``release`` looks for waiters once it has the row, on which they leave word: one that it does not see comes too late to leave
any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database.record import compact

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.request import RequestedLocks

GRANT = """
CREATE FUNCTION {prefix}grant(asked jsonb, locks jsonb, keys jsonb, waits boolean, frees boolean, dead_us bigint)
RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    mine {prefix}request := jsonb_populate_record(NULL::{prefix}request, asked);
    mine_locks CONSTANT {prefix}lock[] := ARRAY(SELECT want FROM jsonb_populate_recordset(NULL::{prefix}lock, locks) AS want);
    fresh CONSTANT boolean := mine.place = 0;
    known_epoch CONSTANT bigint := mine.epoch;
    number bigint;
    now_us bigint;
    earliest bigint;
    nearest bigint;
    void bigint[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'locks are granted at READ COMMITTED only';
    END IF;
    PERFORM CASE WHEN (key -> 1)::boolean THEN pg_advisory_xact_lock((key -> 0)::bigint)
            ELSE pg_advisory_xact_lock_shared((key -> 0)::bigint) END
        FROM jsonb_array_elements(keys) AS kept (key);
    number := nextval('{prefix}number');
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    IF fresh THEN
        mine.place := number;
    END IF;
    SELECT min(met.place) FILTER (WHERE NOT met.void), max(met.place) FILTER (WHERE NOT met.void),
            array_agg(DISTINCT met.place) FILTER (WHERE met.void)
        INTO earliest, nearest, void
        FROM unnest(mine_locks) AS want
        CROSS JOIN LATERAL (
            SELECT their.place, CASE their.state WHEN 'waiting' THEN their.seen_us < now_us - dead_us
                ELSE frees AND their.end_us <= now_us END AS void
            FROM {prefix}lock AS held JOIN {prefix}request AS their ON their.place = held.place + 0
            WHERE held.object_key = want.object_key AND held.place + 0 < mine.place
                AND held.lease_type = ANY (CASE want.lease_type WHEN 'x' THEN ARRAY['s', 'x'] ELSE ARRAY['x'] END)
            OFFSET 0
        ) AS met;
    IF nearest IS NULL AND void IS NOT NULL THEN
        IF fresh AND EXISTS (SELECT FROM {prefix}request WHERE owner_key = mine.owner_key AND place = ANY (void)) THEN
            RETURN NULL;
        END IF;
        RETURN jsonb_build_object('number', number, 'now_us', now_us, 'void', void);
    END IF;
    mine.ahead := NULL;
    IF nearest IS NULL THEN
        mine.state := 'granted';
        mine.token := number;
        mine.granted_us := now_us;
        mine.end_us := now_us + (mine.lease_s * 1000000)::bigint;
    ELSIF waits THEN
        mine.ahead := nearest;
        UPDATE {prefix}request SET audience = greatest(audience, 1)
            WHERE place = nearest AND state IN ('waiting', 'granted');
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        mine.state := 'free';
    END IF;
    IF fresh THEN
        mine.epoch := number;
        mine.began := coalesce(nullif(mine.began, 0), number);
        mine.asked_us := now_us;
        mine.seen_us := now_us;
        IF known_epoch > 0 THEN
            DELETE FROM {prefix}request
                WHERE owner_key = mine.owner_key AND epoch = known_epoch AND state IN ('free', 'ended');
        END IF;
        INSERT INTO {prefix}request SELECT mine.* ON CONFLICT (owner_key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        IF mine.state <> 'free' THEN
            INSERT INTO {prefix}lock
                SELECT number, position, object_key, db_name, table_name, partition_name, lease_type
                FROM unnest(mine_locks);
        END IF;
    ELSE
        UPDATE {prefix}request SET state = mine.state, ahead = mine.ahead, token = mine.token,
                granted_us = mine.granted_us, end_us = mine.end_us
            WHERE owner_key = mine.owner_key AND epoch = known_epoch AND state = 'waiting';
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN jsonb_build_object('number', number, 'now_us', now_us) || CASE WHEN nearest IS NULL THEN '{{}}' ELSE (
        SELECT jsonb_build_object('ahead', jsonb_agg(jsonb_build_object(
                'owner', their.owner, 'state', their.state, 'end_us', their.end_us, 'place', their.place,
                'db_name', met.db_name, 'table_name', met.table_name, 'partition_name', met.partition_name,
                'lease_type', met.lease_type
            ) ORDER BY their.place DESC))
        FROM {prefix}request AS their CROSS JOIN LATERAL (
            SELECT held.*
            FROM unnest(mine_locks) AS want
            JOIN {prefix}lock AS held
                ON held.object_key = want.object_key AND 'x' IN (held.lease_type, want.lease_type)
            WHERE held.place = their.place ORDER BY held.position LIMIT 1
        ) AS met
        WHERE their.place IN (nearest, earliest)
    ) END;
END $$
"""

RELEASE = """
CREATE FUNCTION {prefix}release(of_key text, of_place bigint, of_epoch bigint, frees boolean, channel text)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_us CONSTANT bigint := extract(epoch FROM clock_timestamp()) * 1000000;
    heard smallint;
BEGIN
    UPDATE {prefix}request
        SET state = 'ended', ended_us = CASE WHEN frees AND end_us < now_us THEN end_us ELSE now_us END
        WHERE owner_key = of_key AND place = of_place AND epoch = of_epoch AND state = 'granted'
        RETURNING audience INTO heard;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {prefix}lock WHERE place = of_place;
    IF heard >= 1 THEN
        PERFORM pg_notify(channel || ' ' || left(process, 16), process)
            FROM {prefix}request WHERE ahead = of_place AND state = 'waiting';
    END IF;
    IF heard = 2 THEN
        PERFORM pg_notify(channel, of_place::text);
    END IF;
    RETURN true;
END $$
"""


class Functions:
    """The functions of one set of tables, called on the driver's own connection: each call a transaction.

    SQLAlchemy takes longer over a call than the driver and the database.

    :param prefix: what their names, and the tables', begin with.
    :param channel: where ends of requests are told.
    """

    def __init__(self, prefix: str, channel: str) -> None:
        self._prefix, self._channel = prefix, channel
        self._grant = f"SELECT {prefix}grant(%s, %s, %s, %s, %s, %s)"
        self._release = f"SELECT {prefix}release(%s, %s, %s, %s, %s)"

    def make(self, connection: Connection) -> None:
        for function in (GRANT, RELEASE):
            connection.exec_driver_sql(function.format(prefix=self._prefix))

    def grant(
        self, session: Any, mine: Record, locks: RequestedLocks, *, waits: bool, frees: bool, dead_us: int
    ) -> dict[str, Any] | None:
        """The number, the time, and of those in the way the living ``ahead``, or else the places of the ``void``.

        :param frees: an expired lease blocks nobody.
        :param dead_us: how long after its last sign of life a waiter is taken for dead.
        """
        given = (compact(mine._asdict()), *locks.json, waits, frees, dead_us)
        (tried,) = session.execute(self._grant, given).fetchone()
        found: dict[str, Any] | None = tried
        return found

    def release(self, session: Any, key: str, place: int, epoch: int, *, frees: bool) -> bool:
        """End a very grant, in the hands of a very process, and tell its audience; False if there is none."""
        (released,) = session.execute(self._release, (key, place, epoch, frees, self._channel)).fetchone()
        return bool(released)
