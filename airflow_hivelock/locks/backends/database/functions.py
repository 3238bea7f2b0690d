"""PostgreSQL's functions that grant and release: one round trip each.

``grant`` is what :meth:`.store.Store.grant` says, and decides as :mod:`.order` does. Each statement of a volatile function
sees what was committed before it, so that those after the first see all that its locks have kept out; this is so at READ
COMMITTED only. The planner believes the tables empty: OFFSET 0, and ``place + 0``, keep it from reading all the rows that
were.

``release`` looks for waiters once it has the row, on which they leave word: one that it does not see comes too late to leave
any. Who waits for any lease of a group leaves word on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.backends.database.order import Outcome, in_group, on_lock
from airflow_hivelock.locks.backends.database.record import State, compact

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from airflow_hivelock.locks.backends.database.record import Record
    from airflow_hivelock.locks.backends.database.request import RequestedLocks

BEFORE_LEASE = """
CREATE FUNCTION {prefix}before_lease(mine {prefix}request, now_us bigint, frees boolean, dead_us bigint, passing_us bigint,
    OUT new_turn bigint, OUT new_turn_us bigint, OUT taken bigint[], OUT nearest bigint, OUT void bigint[])
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    expired bigint[];
    claimed record;
BEGIN
    new_turn := coalesce(nullif(mine.group_turn, 0), mine.place);
    new_turn_us := CASE WHEN mine.group_turn = 0 THEN mine.asked_us ELSE mine.group_turn_us END;
    IF mine.group_turn = 0 THEN
        SELECT their.group_turn, their.group_turn_us INTO claimed
            FROM (
                SELECT parked.*, bool_or(priority >= mine.priority OR group_turn_us <= now_us - passing_us)
                    OVER (ORDER BY group_turn DESC, priority, place DESC) AS stops
                FROM {prefix}request AS parked
                WHERE group_key = mine.group_key AND state = 'parked' AND seen_us >= now_us - dead_us
                    AND (group_turn, -priority, place) < (mine.place, -mine.priority, mine.place)
            ) AS their
            WHERE NOT stops ORDER BY group_turn, priority DESC, place LIMIT 1;
        IF FOUND THEN
            new_turn := claimed.group_turn;
            new_turn_us := claimed.group_turn_us;
        END IF;
    END IF;
    SELECT coalesce(array_agg(place ORDER BY end_us) FILTER (WHERE NOT (frees AND end_us <= now_us)), '{{}}'),
            coalesce(array_agg(place) FILTER (WHERE frees AND end_us <= now_us), '{{}}')
        INTO taken, expired
        FROM {prefix}request WHERE group_key = mine.group_key AND state = 'granted' AND place <> mine.place;
    SELECT (max(ARRAY[group_turn, -priority::bigint, place]) FILTER (WHERE seen_us >= now_us - dead_us))[3],
            coalesce(array_agg(place) FILTER (WHERE seen_us < now_us - dead_us), '{{}}')
        INTO nearest, void
        FROM {prefix}request
        WHERE group_key = mine.group_key AND state = 'parked'
            AND (group_turn, -priority, place) < (new_turn, -mine.priority, mine.place);
    IF cardinality(taken) + cardinality(expired) >= mine.most_leases THEN
        void := void || expired;
    END IF;
END $$
"""

GRANT = """
CREATE FUNCTION {prefix}grant(asked jsonb, locks jsonb, keys jsonb, waits boolean, late boolean, frees boolean,
    dead_us bigint, passing_us bigint, channel text)
RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    mine {prefix}request := jsonb_populate_record(NULL::{prefix}request, asked);
    mine_locks CONSTANT {prefix}lock[] := ARRAY(SELECT want FROM jsonb_populate_recordset(NULL::{prefix}lock, locks) AS want);
    fresh CONSTANT boolean := mine.place = 0;
    was CONSTANT text := mine.state;
    known_epoch CONSTANT bigint := mine.epoch;
    number bigint;
    now_us bigint;
    lease_turn bigint;
    lease_turn_us bigint;
    taken bigint[];
    parked bigint;
    lacks_lease boolean := false;
    claims boolean := fresh OR was = 'parked';
    claimed record;
    earliest bigint;
    nearest bigint;
    lowest integer;
    void bigint[];
    behind bigint[];
    standing integer;
    heard smallint;
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
        mine.asked_us := now_us;
    END IF;
    IF mine.group_key IS NOT NULL THEN
        SELECT * INTO lease_turn, lease_turn_us, taken, parked, void
            FROM {prefix}before_lease(mine, now_us, frees, dead_us, passing_us);
        lacks_lease := cardinality(taken) >= mine.most_leases OR parked IS NOT NULL;
        void := CASE WHEN NOT lacks_lease AND cardinality(void) > 0 THEN void END;
    END IF;
    IF NOT lacks_lease AND void IS NULL THEN
        IF claims THEN
            mine.turn := number;
            mine.turn_us := now_us;
        END IF;
        LOOP
            SELECT (max(ARRAY[met.turn, -met.priority::bigint, met.place]) FILTER (WHERE NOT met.void))[3],
                    (min(ARRAY[met.turn, -met.priority::bigint, met.place]) FILTER (WHERE NOT met.void))[3],
                    array_agg(DISTINCT met.place) FILTER (WHERE met.void),
                    min(met.priority) FILTER (WHERE met.state = 'waiting' AND NOT met.void)
                INTO nearest, earliest, void, lowest
                FROM unnest(mine_locks) AS want
                CROSS JOIN LATERAL (
                    SELECT their.place, their.state, their.turn, their.priority,
                        CASE their.state WHEN 'waiting' THEN their.seen_us < now_us - dead_us
                            ELSE frees AND their.end_us <= now_us END AS void
                    FROM {prefix}lock AS held JOIN {prefix}request AS their ON their.place = held.place + 0
                    WHERE held.object_key = want.object_key AND held.place + 0 <> mine.place
                        AND held.lease_type = ANY (CASE want.lease_type WHEN 'x' THEN ARRAY['s', 'x'] ELSE ARRAY['x'] END)
                        AND (their.state = 'granted' OR (their.turn, -their.priority, their.place)
                            < (mine.turn, -mine.priority, mine.place))
                    OFFSET 0
                ) AS met;
            EXIT WHEN NOT claims OR lowest IS NULL OR lowest >= mine.priority;
            claims := false;
            SELECT their.turn, their.turn_us INTO claimed
                FROM (
                    SELECT met.*, bool_or(met.priority >= mine.priority OR met.turn_us <= now_us - passing_us)
                        OVER (ORDER BY met.turn DESC, met.priority, met.place DESC) AS stops
                    FROM {prefix}request AS met
                    WHERE met.state = 'waiting' AND met.seen_us >= now_us - dead_us AND met.place IN (
                        SELECT held.place FROM unnest(mine_locks) AS want JOIN {prefix}lock AS held
                            ON held.object_key = want.object_key AND 'x' IN (held.lease_type, want.lease_type)
                        WHERE held.place <> mine.place
                    )
                ) AS their
                WHERE NOT stops ORDER BY turn, priority DESC, place LIMIT 1;
            EXIT WHEN NOT FOUND;
            mine.turn := claimed.turn;
            mine.turn_us := claimed.turn_us;
        END LOOP;
    END IF;
    IF nearest IS NULL AND void IS NOT NULL THEN
        IF fresh AND EXISTS (SELECT FROM {prefix}request WHERE owner_key = mine.owner_key AND place = ANY (void)) THEN
            RETURN NULL;
        END IF;
        RETURN jsonb_build_object('number', number, 'now_us', now_us, 'void', void);
    END IF;
    mine.ahead := NULL;
    IF NOT waits AND (lacks_lease OR nearest IS NOT NULL) THEN
        mine.state := 'free';
    ELSIF lacks_lease THEN
        mine.state := 'parked';
        mine.turn := 0;
        mine.group_turn := lease_turn;
        mine.group_turn_us := lease_turn_us;
        mine.ahead := coalesce(parked, -mine.group_key);
        behind := CASE WHEN parked IS NULL THEN taken ELSE ARRAY[parked] END;
        PERFORM FROM {prefix}request
            WHERE place = ANY (behind) AND state = CASE WHEN parked IS NULL THEN 'granted' ELSE 'parked' END
            ORDER BY place FOR UPDATE;
        GET DIAGNOSTICS standing = ROW_COUNT;
        IF standing < cardinality(behind) THEN
            RETURN NULL;
        END IF;
        UPDATE {prefix}request SET audience = 1 WHERE place = ANY (behind) AND audience < 1;
    ELSIF nearest IS NOT NULL THEN
        mine.state := 'waiting';
        mine.ahead := nearest;
        UPDATE {prefix}request SET audience = greatest(audience, 1)
            WHERE place = nearest AND state IN ('waiting', 'granted');
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSIF late THEN
        mine.state := 'away';
        mine.turn := 0;
        mine.group_turn := 0;
        mine.group_key := NULL;
    ELSE
        mine.state := 'granted';
        mine.token := number;
        mine.granted_us := now_us;
        mine.end_us := now_us + (mine.lease_s * 1000000)::bigint;
    END IF;
    IF fresh THEN
        mine.epoch := number;
        mine.began := coalesce(nullif(mine.began, 0), number);
        mine.seen_us := now_us;
        IF known_epoch > 0 THEN
            DELETE FROM {prefix}request
                WHERE owner_key = mine.owner_key AND epoch = known_epoch AND state IN ('free', 'away', 'ended');
        END IF;
        INSERT INTO {prefix}request SELECT mine.* ON CONFLICT (owner_key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSE
        UPDATE {prefix}request SET state = mine.state, ahead = mine.ahead, token = mine.token,
                granted_us = mine.granted_us, end_us = mine.end_us, turn = mine.turn, turn_us = mine.turn_us,
                group_key = mine.group_key, group_turn = mine.group_turn, group_turn_us = mine.group_turn_us
            WHERE owner_key = mine.owner_key AND epoch = known_epoch AND state = was AND was IN ('waiting', 'parked')
            RETURNING audience INTO heard;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF mine.state IN ('waiting', 'granted') AND (fresh OR was = 'parked') THEN
        INSERT INTO {prefix}lock
            SELECT mine.place, position, object_key, db_name, table_name, partition_name, lease_type
            FROM unnest(mine_locks);
    ELSIF mine.state IN ('parked', 'away') AND NOT fresh AND was = 'waiting' THEN
        DELETE FROM {prefix}lock WHERE place = mine.place;
    END IF;
    IF heard >= 1 AND mine.state <> was AND (was, mine.state) <> ('waiting', 'granted') THEN
        PERFORM pg_notify(channel || ' ' || left(process, 16), process)
            FROM {prefix}request WHERE ahead = mine.place AND state IN ('waiting', 'parked');
    END IF;
    RETURN jsonb_build_object('number', number, 'now_us', now_us, 'state', mine.state, 'turn', mine.turn,
            'turn_us', mine.turn_us) || CASE WHEN lacks_lease THEN (
        SELECT jsonb_build_object('parked', parked IS NOT NULL, 'group_turn', mine.group_turn,
                'group_turn_us', mine.group_turn_us, 'behind', coalesce(behind, '{{}}'), 'ahead', jsonb_agg(jsonb_build_object(
                'owner', their.owner, 'state', their.state, 'end_us', their.end_us, 'place', their.place,
                'locks', their.locks
            ) ORDER BY their.state))
        FROM {prefix}request AS their
        WHERE their.place = parked OR (their.place = taken[1] AND cardinality(taken) >= mine.most_leases)
    ) WHEN nearest IS NULL THEN '{{}}' ELSE (
        SELECT jsonb_build_object('behind', ARRAY[nearest], 'ahead', jsonb_agg(jsonb_build_object(
                'owner', their.owner, 'state', their.state, 'end_us', their.end_us, 'place', their.place,
                'db_name', met.db_name, 'table_name', met.table_name, 'partition_name', met.partition_name,
                'lease_type', met.lease_type
            ) ORDER BY their.place = nearest DESC))
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
    its_group bigint;
BEGIN
    UPDATE {prefix}request
        SET state = 'ended', ended_us = CASE WHEN frees AND end_us < now_us THEN end_us ELSE now_us END
        WHERE owner_key = of_key AND place = of_place AND epoch = of_epoch AND state = 'granted'
        RETURNING audience, group_key INTO heard, its_group;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {prefix}lock WHERE place = of_place;
    IF its_group IS NOT NULL THEN
        UPDATE {prefix}request SET group_key = NULL WHERE owner_key = of_key;
    END IF;
    IF heard >= 1 THEN
        PERFORM pg_notify(channel || ' ' || left(process, 16), process)
            FROM {prefix}request
            WHERE ahead = ANY (ARRAY[of_place, -its_group]) AND state IN ('waiting', 'parked');
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
        self._grant = f"SELECT {prefix}grant(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
        self._release = f"SELECT {prefix}release(%s, %s, %s, %s, %s)"

    def make(self, connection: Connection) -> None:
        for function in (BEFORE_LEASE, GRANT, RELEASE):
            connection.exec_driver_sql(function.format(prefix=self._prefix))

    def grant(
        self, session: Any, mine: Record, locks: RequestedLocks, *bounds: int, waits: bool, late: bool
    ) -> Outcome | None:
        """See :meth:`.store.Store.grant`.

        :param bounds: whether an expired lease blocks nobody; how long after its last sign of life a waiter is taken for dead;
            and how long one is passed by more urgent ones, in microseconds.
        """
        given = (compact(mine._asdict()), *locks.json, waits, late, *bounds, self._channel)
        (tried,) = session.execute(self._grant, given).fetchone()
        if tried is None:
            return None
        number, now_us = tried["number"], tried["now_us"]
        if "void" in tried:
            return Outcome(mine, now_us, void=tried["void"])
        record = mine.placed(number, now_us)._replace(
            state=State(tried["state"]), turn=tried["turn"], turn_us=tried["turn_us"]
        )
        match record.state:
            case State.GRANTED:
                return Outcome(record.granted(number, now_us), now_us)
            case State.AWAY:
                return Outcome(record.aside(), now_us)
        if "parked" not in tried:
            behind = dict.fromkeys(tried["behind"], False)
            return Outcome(record, now_us, [on_lock(row) for row in tried["ahead"]], behind)
        record = record._replace(group_turn=tried["group_turn"], group_turn_us=tried["group_turn_us"])
        behind = dict.fromkeys(tried["behind"], tried["parked"])
        return Outcome(record, now_us, [in_group(row, record.lease_group) for row in tried["ahead"]], behind)

    def release(self, session: Any, key: str, place: int, epoch: int, *, frees: bool) -> bool:
        """End a very grant, in the hands of a very process, and tell its audience; False if there is none."""
        (released,) = session.execute(self._release, (key, place, epoch, frees, self._channel)).fetchone()
        return bool(released)
