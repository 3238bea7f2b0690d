"""What version 2 of the tables had in PostgreSQL, and processes of its package, while they run, still call: see :mod:`.turn`.

It does what :mod:`.acquisition` does in the commonest case, where the owner is new and no lock of another's conflicts, be
it held, waited for or left by the dead. In any other case it writes nothing. Each statement of a volatile function sees
what was committed before it, so that those after the first see all that its locks have kept out; this is so at READ
COMMITTED only, and otherwise it does nothing at all. LIMIT keeps the planner, which believes the tables empty, from
reading all the rows that were.
"""

from __future__ import annotations

FUNCTION = """
CREATE FUNCTION {prefix}grant_at_once(asked jsonb, wanted jsonb, keys jsonb, OUT number bigint, OUT now_us bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    PERFORM CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
        FROM jsonb_to_recordset(keys) AS kept (key bigint, exclusive boolean);
    IF EXISTS (SELECT FROM {prefix}request WHERE owner_key = asked ->> 'owner_key')
        OR EXISTS (
            SELECT FROM jsonb_populate_recordset(NULL::{prefix}lock, wanted) AS mine
            CROSS JOIN LATERAL (
                SELECT FROM {prefix}lock AS theirs WHERE theirs.object_key = mine.object_key
                    AND theirs.lease_type = ANY (CASE mine.lease_type WHEN 'x' THEN ARRAY['s', 'x'] ELSE ARRAY['x'] END)
                LIMIT 1
            ) AS met
        )
    THEN
        RETURN;
    END IF;
    number := nextval('{prefix}number');
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    INSERT INTO {prefix}request SELECT * FROM jsonb_populate_record(NULL::{prefix}request, asked || jsonb_build_object(
        'place', number, 'epoch', number, 'began', number, 'token', number, 'asked_us', now_us, 'seen_us', now_us,
        'granted_us', now_us, 'end_us', now_us + (asked ->> 'lease_us')::bigint
    ));
    INSERT INTO {prefix}lock (place, position, object_key, db_name, table_name, partition_name, lease_type)
        SELECT number, position, object_key, db_name, table_name, partition_name, lease_type
        FROM jsonb_populate_recordset(NULL::{prefix}lock, wanted);
END $$
"""
"""Made by the step to version 2; another one, should it ever be needed, is made by a later step."""
