CREATE SCHEMA golden;
CREATE TABLE golden.hivelock_audit (
    number bigint NOT NULL,
    lease_id character varying(40) NOT NULL,
    owner text NOT NULL,
    locks text NOT NULL,
    user_name text NOT NULL,
    reason text NOT NULL,
    at_us bigint NOT NULL,
    more text
);
CREATE SEQUENCE golden.hivelock_audit_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE golden.hivelock_audit_number_seq OWNED BY golden.hivelock_audit.number;
CREATE TABLE golden.hivelock_lock (
    place bigint NOT NULL,
    "position" integer NOT NULL,
    object_key bigint NOT NULL,
    db_name text NOT NULL,
    table_name text NOT NULL,
    partition_name text NOT NULL,
    lease_type character varying(1) NOT NULL
);
CREATE TABLE golden.hivelock_request (
    owner_key character varying(16) NOT NULL,
    owner text NOT NULL,
    state character varying(8) NOT NULL,
    process character varying(32) NOT NULL,
    epoch bigint NOT NULL,
    attempt bigint NOT NULL,
    began bigint NOT NULL,
    place bigint NOT NULL,
    token bigint NOT NULL,
    lease_s double precision NOT NULL,
    locks text NOT NULL,
    works text NOT NULL,
    query text NOT NULL,
    named text NOT NULL,
    priority bigint NOT NULL,
    lease_group text NOT NULL,
    most_leases bigint NOT NULL,
    asked_us bigint NOT NULL,
    seen_us bigint NOT NULL,
    turn bigint NOT NULL,
    turn_us bigint NOT NULL,
    old_turn bigint NOT NULL,
    old_turn_us bigint NOT NULL,
    until_us bigint,
    group_key bigint,
    group_turn bigint NOT NULL,
    group_turn_us bigint NOT NULL,
    ahead bigint,
    watched bigint NOT NULL,
    granted_us bigint,
    end_us bigint,
    ended_us bigint,
    given text NOT NULL,
    whole text NOT NULL,
    more text,
    weight bigint
);
CREATE VIEW golden.hivelock_lease AS
 SELECT hivelock_request.owner,
    hivelock_lock.place AS lease_id,
    hivelock_lock.db_name,
    hivelock_lock.table_name,
    hivelock_lock.partition_name,
    to_timestamp((((hivelock_request.granted_us)::numeric / 1000000.0))::double precision) AS start_utc,
    to_timestamp((((hivelock_request.end_us)::numeric / 1000000.0))::double precision) AS end_utc,
    hivelock_lock.lease_type
   FROM (golden.hivelock_lock
     JOIN golden.hivelock_request ON ((hivelock_lock.place = hivelock_request.place)))
  WHERE ((hivelock_request.state)::text = 'granted'::text);
CREATE TABLE golden.hivelock_lease_group (
    group_key bigint NOT NULL,
    name text NOT NULL,
    leases integer NOT NULL,
    weight integer NOT NULL,
    comment text NOT NULL,
    more text
);
CREATE SEQUENCE golden.hivelock_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE golden.hivelock_store (
    version integer NOT NULL,
    number bigint NOT NULL,
    min_reader integer,
    raised_by character varying(40)
);
ALTER TABLE ONLY golden.hivelock_audit ALTER COLUMN number SET DEFAULT nextval('golden.hivelock_audit_number_seq'::regclass);
INSERT INTO golden.hivelock_audit VALUES (1, '', 'group spark-prod', '{}', 'ops', '3 leases, default weight 2 (as many as the cluster runs), before: no limit in the store', 1795666100958945, NULL);
INSERT INTO golden.hivelock_audit VALUES (2, '14', 'here/dag/run/forced/-1', '{"dw":"S","dw.forced":"X"}', 'ops', 'its host is gone', 1795666100980741, NULL);
INSERT INTO golden.hivelock_lease_group VALUES (164515646930667396, 'spark-prod', 3, 2, 'as many as the cluster runs', NULL);
INSERT INTO golden.hivelock_lock VALUES (1, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (1, 1, 7586232768815636808, 'dw', 'airports', '', 's');
INSERT INTO golden.hivelock_lock VALUES (1, 2, 3609830591634298543, 'dw', 'flights', '', 's');
INSERT INTO golden.hivelock_lock VALUES (1, 3, -4583749755067427234, 'dw', 'flights', 'dt=2013-01-01', 'x');
INSERT INTO golden.hivelock_lock VALUES (4, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (4, 1, 3609830591634298543, 'dw', 'flights', '', 's');
INSERT INTO golden.hivelock_lock VALUES (4, 2, -4583749755067427234, 'dw', 'flights', 'dt=2013-01-01', 'x');
INSERT INTO golden.hivelock_lock VALUES (5, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (5, 1, 3609830591634298543, 'dw', 'flights', '', 's');
INSERT INTO golden.hivelock_lock VALUES (5, 2, -4583749755067427234, 'dw', 'flights', 'dt=2013-01-01', 'x');
INSERT INTO golden.hivelock_lock VALUES (7, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (7, 1, 802671632602547020, 'dw', 'heavy', '', 'x');
INSERT INTO golden.hivelock_lock VALUES (9, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (9, 1, -2446559617396450867, 'dw', 'invited', '', 'x');
INSERT INTO golden.hivelock_lock VALUES (12, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (12, 1, -7316650213637917745, 'dw', 'busy', '', 'x');
INSERT INTO golden.hivelock_request VALUES ('c4695d43744c1f77', 'here/dag/run/ended/-1', 'ended', '047cb40d15494d460000000000000017', 13, 0, 13, 13, 13, 60, '{"dw":"S","dw.ended":"S"}', '[]', '', '', 1, '', 0, 1795666100971196, 1795666100971196, 13, 1795666100971196, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795666100971196, 1795666160971196, 1795666100973516, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('d972c9c1946871f4', 'here/dag/run/forced/-1', 'ended', '047cb40d15494d460000000000000018', 14, 0, 14, 14, 14, 3600, '{"dw":"S","dw.forced":"X"}', '[]', '', '', 1, '', 0, 1795666100974346, 1795666100974346, 14, 1795666100974346, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795666100974346, 1795669700974346, 1795666100979734, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('690c59ff97ea94e0', 'here/dag/run/waits/-1', 'waiting', '047cb40d15494d46000000000000000e', 4, 2, 4, 4, 0, 3600, '{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[]', 'INSERT … for waits', 'writes a day', 5, '', 0, 1357095845000000, 1795666100941421, 4, 1795666100941421, 0, 0, NULL, NULL, 0, 0, 1, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('b77207704d45f49e', 'here/dag/run/waits-urgently/-1', 'waiting', '047cb40d15494d46000000000000000f', 5, 2, 5, 5, 0, 3600, '{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[]', 'INSERT … for waits-urgently', '', 9, '', 0, 1795666100951763, 1795666100951763, 4, 1795666100941421, 0, 0, NULL, NULL, 0, 0, 1, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('c7ca48fc1caac82f', 'here/dag/run/holds/-1', 'granted', '047cb40d15494d46000000000000000d', 1, 3, 1, 1, 2, 1800, '{"dw":"S","dw.airports":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[["job", "{\"kind\":\"process\"}", 2]]', 'INSERT OVERWRITE TABLE dw.flights', '', 7, 'rerun', 1, 1795666100927861, 1795666100927861, 1, 1795666100927861, 0, 0, NULL, 3641733997789959691, 0, 0, NULL, 1, 1795666100927861, 1795667900927861, NULL, '{"dw.flights/dt=2013-01-02":"X"}', 'dw', NULL, 1);
INSERT INTO golden.hivelock_request VALUES ('2465f1650e1ec185', 'here/dag/run/parked/-1', 'parked', '047cb40d15494d460000000000000010', 6, 2, 6, 6, 0, 3600, '{"dw":"S","dw.parked":"X"}', '[]', 'INSERT … for parked', '', 1, 'rerun', 1, 1795666100954832, 1795666100954832, 0, 0, 0, 0, NULL, 3641733997789959691, 6, 1795666100954832, -3641733997789959691, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('ea385254f3cd8374', 'here/dag/run/heavy/-1', 'granted', '047cb40d15494d460000000000000011', 7, 0, 7, 7, 7, 3600, '{"dw":"S","dw.heavy":"X"}', '[]', '', '', 1, 'spark-prod', 10000, 1795666100960061, 1795666100960061, 7, 1795666100960061, 0, 0, NULL, 164515646930667396, 0, 0, NULL, 1, 1795666100960061, 1795669700960061, NULL, '', '', NULL, 3);
INSERT INTO golden.hivelock_request VALUES ('0cb75f9610514176', 'here/dag/run/heavy-by-default/-1', 'parked', '047cb40d15494d460000000000000012', 8, 2, 8, 8, 0, 3600, '{"dw":"S","dw.heavy_too":"X"}', '[]', 'INSERT … for heavy-by-default', '', 1, 'spark-prod', 10000, 1795666100961766, 1795666100961766, 0, 0, 0, 0, NULL, 164515646930667396, 8, 1795666100961766, -164515646930667396, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('c48986ab1eefb97a', 'here/dag/run/invited/-1', 'invited', '047cb40d15494d460000000000000013', 9, 2, 9, 9, 0, 3600, '{"dw":"S","dw.invited":"X"}', '[]', 'INSERT … for invited', '', 1, '', 0, 1795666100963458, 1795666100963458, 9, 1795666100963458, 0, 0, 1795669700963458, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('3578b87d1884ecd0', 'here/dag/run/away/-1', 'away', '047cb40d15494d460000000000000014', 10, 2, 10, 10, 0, 3600, '{"dw":"S","dw.away":"X"}', '[]', 'INSERT … for away', '', 1, '', 0, 1795666100964896, 1795666100964896, 0, 1795666100964896, 0, 0, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('e50297fd58ce291a', 'here/dag/run/was-invited/-1', 'away', '047cb40d15494d460000000000000015', 11, 2, 11, 11, 0, 3600, '{"dw":"S","dw.busy":"X"}', '[]', 'INSERT … for was-invited', '', 1, '', 0, 1795666100965964, 1795666100965964, 11, 1795666100965964, 0, 0, 1795666100966964, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_request VALUES ('109d5d12d0a01b5e', 'here/dag/run/takes-its-turn/-1', 'granted', '047cb40d15494d460000000000000016', 12, 0, 12, 12, 12, 3600, '{"dw":"S","dw.busy":"X"}', '[]', '', '', 1, '', 0, 1795666100967138, 1795666100967138, 12, 1795666100967138, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795666100967138, 1795669700967138, NULL, '', '', NULL, 0);
INSERT INTO golden.hivelock_store VALUES (5, 0, 5, '0.1.0');
SELECT pg_catalog.setval('golden.hivelock_audit_number_seq', 2, true);
SELECT pg_catalog.setval('golden.hivelock_number', 14, true);
ALTER TABLE ONLY golden.hivelock_audit
    ADD CONSTRAINT hivelock_audit_pkey PRIMARY KEY (number);
ALTER TABLE ONLY golden.hivelock_lease_group
    ADD CONSTRAINT hivelock_lease_group_pkey PRIMARY KEY (group_key);
ALTER TABLE ONLY golden.hivelock_lock
    ADD CONSTRAINT hivelock_lock_pkey PRIMARY KEY (place, "position");
ALTER TABLE ONLY golden.hivelock_request
    ADD CONSTRAINT hivelock_request_pkey PRIMARY KEY (owner_key);
ALTER TABLE ONLY golden.hivelock_store
    ADD CONSTRAINT hivelock_store_pkey PRIMARY KEY (version);
CREATE INDEX hivelock_lock_object ON golden.hivelock_lock USING btree (object_key, place);
CREATE INDEX hivelock_request_ahead ON golden.hivelock_request USING btree (ahead);
CREATE INDEX hivelock_request_group ON golden.hivelock_request USING btree (group_key, state) WHERE (group_key IS NOT NULL);
CREATE UNIQUE INDEX hivelock_request_place ON golden.hivelock_request USING btree (place);
