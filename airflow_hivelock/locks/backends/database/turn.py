"""PostgreSQL's functions that take a turn, to a grant or a place in the queue, and that release: one round trip each.

``take_turn`` does what :mod:`.acquisition` does where the owner is new, or still waits. Where there is more to it (another
record of the owner's, a dead waiter or an expired lease in the way, a request that must not wait, one in the way that
ends at this very moment) it writes nothing and returns no row. Each statement of a volatile function sees what was
committed before it, so that those after the first see all that its locks have kept out; this is so at READ COMMITTED
only, and otherwise it does nothing at all. OFFSET 0 keeps the planner, which believes the tables empty, from reading
all the rows that were.

``release`` looks for those who wait once it has the row, on which they leave word: whoever it does not see comes too late
to leave any.

Both are made by the step to version 3; others, should they ever be needed, are made by a later step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import column, text

from airflow_hivelock.locks.backends.database.prepared import Prepared

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from airflow_hivelock.locks.backends.database.tables import Tables

TAKE_FUNCTION = """
CREATE FUNCTION {prefix}take_turn(asked jsonb, wanted jsonb, keys jsonb) RETURNS TABLE (
    number bigint, now_us bigint, ahead_owner text, ahead_state varchar, ahead_end_us bigint, ahead_place bigint,
    ahead_void boolean, db_name text, table_name text, partition_name text, lease_type varchar
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    mine {prefix}request := jsonb_populate_record(NULL::{prefix}request, asked);
    fresh CONSTANT boolean := mine.place = 0;
    earliest bigint;
    nearest bigint;
    void boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    PERFORM CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
        FROM jsonb_to_recordset(keys) AS kept (key bigint, exclusive boolean);
    IF fresh = EXISTS (
        SELECT FROM {prefix}request AS own
        WHERE own.owner_key = mine.owner_key AND (fresh OR (own.epoch = mine.epoch AND own.state = 'waiting'))
    ) THEN
        RETURN;
    END IF;
    number := nextval('{prefix}number');
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    IF fresh THEN
        mine.place := number;
        mine.epoch := number;
        mine.began := number;
        mine.asked_us := now_us;
        mine.seen_us := now_us;
    END IF;
    SELECT min(met.place), max(met.place), bool_or(
            CASE met.state WHEN 'waiting' THEN met.seen_us < now_us - (asked ->> 'dead_us')::bigint
            ELSE (asked ->> 'frees')::boolean AND met.end_us <= now_us END
        ) INTO earliest, nearest, void
        FROM jsonb_populate_recordset(NULL::{prefix}lock, wanted) AS want
        CROSS JOIN LATERAL (
            SELECT their.place, their.state, their.seen_us, their.end_us
            FROM {prefix}lock AS held JOIN {prefix}request AS their ON their.place = held.place
            WHERE held.object_key = want.object_key AND held.place < mine.place
                AND held.lease_type = ANY (CASE want.lease_type WHEN 'x' THEN ARRAY['s', 'x'] ELSE ARRAY['x'] END)
            OFFSET 0
        ) AS met;
    IF nearest IS NULL THEN
        mine.state := 'granted';
        mine.token := number;
        mine.granted_us := now_us;
        mine.end_us := now_us + (asked ->> 'lease_us')::bigint;
    ELSIF void OR NOT (asked ->> 'waits')::boolean THEN
        RETURN;
    ELSE
        UPDATE {prefix}request SET audience = greatest(audience, 1)
            WHERE place = nearest AND state IN ('waiting', 'granted');
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF fresh THEN
        mine.ahead := nearest;
        INSERT INTO {prefix}request VALUES (mine.*);
        INSERT INTO {prefix}lock (place, position, object_key, db_name, table_name, partition_name, lease_type)
            SELECT mine.place, position, object_key, db_name, table_name, partition_name, lease_type
            FROM jsonb_populate_recordset(NULL::{prefix}lock, wanted);
    ELSE
        UPDATE {prefix}request SET state = mine.state, token = mine.token, granted_us = mine.granted_us,
            end_us = mine.end_us, ahead = nearest
            WHERE owner_key = mine.owner_key AND epoch = mine.epoch AND state = 'waiting';
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF nearest IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY SELECT number, now_us, their.owner, their.state, their.end_us, their.place, false,
            met.db_name, met.table_name, met.partition_name, met.lease_type
        FROM {prefix}request AS their CROSS JOIN LATERAL (
            SELECT held.* FROM jsonb_populate_recordset(NULL::{prefix}lock, wanted) AS want
            JOIN {prefix}lock AS held ON held.object_key = want.object_key AND 'x' IN (held.lease_type, want.lease_type)
            WHERE held.place = their.place ORDER BY held.position LIMIT 1
        ) AS met
        WHERE their.place IN (nearest, earliest) ORDER BY their.place DESC;
END $$
"""

TAKE = """
SELECT number, now_us, CASE WHEN ahead_place IS NOT NULL THEN to_jsonb(turn) - ARRAY['number', 'now_us'] END
FROM {prefix}take_turn(:asked, :wanted, :keys) AS turn
"""

RELEASE_FUNCTION = """
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

RELEASE = "SELECT {prefix}release(:key, :place, :epoch, :frees, :channel)"


class Ahead(NamedTuple):
    """Who is in the way."""

    ahead_owner: str
    ahead_state: str
    ahead_end_us: int | None
    ahead_place: int
    ahead_void: bool
    db_name: str
    table_name: str
    partition_name: str
    lease_type: str


class Calls:
    """The statements that call them."""

    def __init__(self, tables: Tables, engine: Engine) -> None:
        def prepared(statement: str, *columns: str) -> Prepared:
            return Prepared(text(statement.format(prefix=tables.qualified)).columns(*map(column, columns)), engine)

        self.take = prepared(TAKE, "number", "now_us", "ahead")
        self.release = prepared(RELEASE, "released")
