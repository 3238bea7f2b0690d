"""PostgreSQL's functions that take a turn, to a grant or a place in the queue, and that release: one round trip each.

``take_turn`` does what :mod:`.acquisition` does where the owner is new, or still waits. Where there is more to it (another
record of the owner's, a dead waiter or an expired lease in the way, a request that must not wait, one in the way that
ends at this very moment) it returns NULL, and has written nothing but, at most, word for one who does not wait. Else it
returns a number and the time, and, where the request waits, the rows of :class:`Ahead` as JSON. Each statement of a volatile function sees what
was committed before it, so that those after the first see all that its locks have kept out; this is so at READ COMMITTED
only, and otherwise it does nothing at all. OFFSET 0 keeps the planner, which believes the tables empty, from reading all
the rows that were.

``release`` looks for those who wait once it has the row, on which they leave word: whoever it does not see comes too late
to leave any.

Both are made by the step to version 2; others, should they ever be needed, are made by a later step.
"""

from __future__ import annotations

from typing import NamedTuple

TAKE_FUNCTION = """
CREATE FUNCTION {prefix}take_turn(
    my_key text, my_owner text, my_process text, my_attempt bigint, my_lease_s double precision, my_locks text,
    my_query text, my_named text, my_place bigint, my_epoch bigint, waits boolean, frees boolean, dead_us bigint,
    keys bigint[], exclusive boolean[],
    object_keys bigint[], db_names text[], table_names text[], partition_names text[], lease_types text[]
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    fresh CONSTANT boolean := my_place = 0;
    number bigint;
    now_us bigint;
    my_token bigint := 0;
    my_granted_us bigint;
    my_end_us bigint;
    earliest bigint;
    nearest bigint;
    void boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN NULL;
    END IF;
    PERFORM CASE WHEN alone THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
        FROM unnest(keys, exclusive) AS kept (key, alone);
    number := nextval('{prefix}number');
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    IF fresh THEN
        my_place := number;
    END IF;
    SELECT min(met.place), max(met.place), bool_or(
            CASE met.state WHEN 'waiting' THEN met.seen_us < now_us - dead_us ELSE frees AND met.end_us <= now_us END
        ) INTO earliest, nearest, void
        FROM unnest(object_keys, lease_types) AS want (object_key, lease_type)
        CROSS JOIN LATERAL (
            SELECT their.place, their.state, their.seen_us, their.end_us
            FROM {prefix}lock AS held JOIN {prefix}request AS their ON their.place = held.place
            WHERE held.object_key = want.object_key AND held.place < my_place
                AND held.lease_type = ANY (CASE want.lease_type WHEN 'x' THEN ARRAY['s', 'x'] ELSE ARRAY['x'] END)
            OFFSET 0
        ) AS met;
    IF nearest IS NULL THEN
        my_token := number;
        my_granted_us := now_us;
        my_end_us := now_us + (my_lease_s * 1000000)::bigint;
    ELSIF void OR NOT waits THEN
        RETURN NULL;
    ELSE
        UPDATE {prefix}request SET audience = greatest(audience, 1)
            WHERE place = nearest AND state IN ('waiting', 'granted');
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF fresh THEN
        INSERT INTO {prefix}request (
                owner_key, owner, state, process, epoch, attempt, began, place, ahead, audience, token, lease_s, locks,
                works, query, named, asked_us, seen_us, granted_us, end_us
            ) VALUES (
                my_key, my_owner, CASE WHEN nearest IS NULL THEN 'granted' ELSE 'waiting' END, my_process, number,
                my_attempt, number, number, nearest, 0, my_token, my_lease_s, my_locks, '[]', my_query, my_named, now_us,
                now_us, my_granted_us, my_end_us
            ) ON CONFLICT (owner_key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        INSERT INTO {prefix}lock (place, position, object_key, db_name, table_name, partition_name, lease_type)
            SELECT number, nth - 1, object_key, db_name, table_name, partition_name, lease_type
            FROM unnest(object_keys, db_names, table_names, partition_names, lease_types) WITH ORDINALITY
                AS want (object_key, db_name, table_name, partition_name, lease_type, nth);
    ELSE
        UPDATE {prefix}request SET ahead = nearest, token = my_token, granted_us = my_granted_us, end_us = my_end_us,
                state = CASE WHEN nearest IS NULL THEN 'granted' ELSE 'waiting' END
            WHERE owner_key = my_key AND epoch = my_epoch AND state = 'waiting';
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF nearest IS NULL THEN
        RETURN number || ' ' || now_us;
    END IF;
    RETURN (
        SELECT number || ' ' || now_us || ' ' || json_agg(json_build_array(
                their.owner, their.state, their.end_us, their.place, false,
                met.db_name, met.table_name, met.partition_name, met.lease_type
            ) ORDER BY their.place DESC)
        FROM {prefix}request AS their CROSS JOIN LATERAL (
            SELECT held.*
            FROM unnest(object_keys, lease_types) AS want (object_key, lease_type)
            JOIN {prefix}lock AS held ON held.object_key = want.object_key AND 'x' IN (held.lease_type, want.lease_type)
            WHERE held.place = their.place ORDER BY held.position LIMIT 1
        ) AS met
        WHERE their.place IN (nearest, earliest)
    );
END $$
"""

TAKE = "SELECT {prefix}take_turn(" + ", ".join(["%s"] * 20) + ")"

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

RELEASE = "SELECT {prefix}release(%s, %s, %s, %s, %s)"


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
