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
    more text
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
INSERT INTO golden.hivelock_audit VALUES (1, '12', 'here/dag/run/forced/-1', '{"dw":"S","dw.forced":"X"}', 'ops', 'its host is gone', 1795643095405657, NULL);
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
INSERT INTO golden.hivelock_lock VALUES (7, 1, -2446559617396450867, 'dw', 'invited', '', 'x');
INSERT INTO golden.hivelock_lock VALUES (10, 0, -5157592718535306128, 'dw', '', '', 's');
INSERT INTO golden.hivelock_lock VALUES (10, 1, -7316650213637917745, 'dw', 'busy', '', 'x');
INSERT INTO golden.hivelock_request VALUES ('690c59ff97ea94e0', 'here/dag/run/waits/-1', 'waiting', 'e03715fa10e94637000000000000000c', 4, 2, 4, 4, 0, 3600, '{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[]', 'INSERT … for waits', 'writes a day', 5, '', 0, 1357095845000000, 1795643094700706, 4, 1795643094700706, 0, 0, NULL, NULL, 0, 0, 1, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('b77207704d45f49e', 'here/dag/run/waits-urgently/-1', 'waiting', 'e03715fa10e94637000000000000000d', 5, 2, 5, 5, 0, 3600, '{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[]', 'INSERT … for waits-urgently', '', 9, '', 0, 1795643094842793, 1795643094842793, 4, 1795643094700706, 0, 0, NULL, NULL, 0, 0, 1, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('c7ca48fc1caac82f', 'here/dag/run/holds/-1', 'granted', 'e03715fa10e94637000000000000000b', 1, 3, 1, 1, 2, 1800, '{"dw":"S","dw.airports":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}', '[["job", "{\"kind\":\"process\"}", 2]]', 'INSERT OVERWRITE TABLE dw.flights', '', 7, 'rerun', 1, 1795643094410615, 1795643094410615, 1, 1795643094410615, 0, 0, NULL, 3641733997789959691, 0, 0, NULL, 1, 1795643094410615, 1795644894410615, NULL, '{"dw.flights/dt=2013-01-02":"X"}', 'dw', NULL);
INSERT INTO golden.hivelock_request VALUES ('2465f1650e1ec185', 'here/dag/run/parked/-1', 'parked', 'e03715fa10e94637000000000000000e', 6, 2, 6, 6, 0, 3600, '{"dw":"S","dw.parked":"X"}', '[]', 'INSERT … for parked', '', 1, 'rerun', 1, 1795643094889902, 1795643094889902, 0, 0, 0, 0, NULL, 3641733997789959691, 6, 1795643094889902, -3641733997789959691, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('c48986ab1eefb97a', 'here/dag/run/invited/-1', 'invited', 'e03715fa10e94637000000000000000f', 7, 2, 7, 7, 0, 3600, '{"dw":"S","dw.invited":"X"}', '[]', 'INSERT … for invited', '', 1, '', 0, 1795643094927911, 1795643094927911, 7, 1795643094927911, 0, 0, 1795646694927911, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('3578b87d1884ecd0', 'here/dag/run/away/-1', 'away', 'e03715fa10e946370000000000000010', 8, 2, 8, 8, 0, 3600, '{"dw":"S","dw.away":"X"}', '[]', 'INSERT … for away', '', 1, '', 0, 1795643094977098, 1795643094977098, 0, 1795643094977098, 0, 0, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('e50297fd58ce291a', 'here/dag/run/was-invited/-1', 'away', 'e03715fa10e946370000000000000011', 9, 2, 9, 9, 0, 3600, '{"dw":"S","dw.busy":"X"}', '[]', 'INSERT … for was-invited', '', 1, '', 0, 1795643095021954, 1795643095021954, 9, 1795643095021954, 0, 0, 1795643095022954, NULL, 0, 0, NULL, 0, NULL, NULL, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('109d5d12d0a01b5e', 'here/dag/run/takes-its-turn/-1', 'granted', 'e03715fa10e946370000000000000012', 10, 0, 10, 10, 10, 3600, '{"dw":"S","dw.busy":"X"}', '[]', '', '', 1, '', 0, 1795643095089989, 1795643095089989, 10, 1795643095089989, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795643095089989, 1795646695089989, NULL, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('c4695d43744c1f77', 'here/dag/run/ended/-1', 'ended', 'e03715fa10e946370000000000000013', 11, 0, 11, 11, 11, 60, '{"dw":"S","dw.ended":"S"}', '[]', '', '', 1, '', 0, 1795643095192209, 1795643095192209, 11, 1795643095192209, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795643095192209, 1795643155192209, 1795643095254211, '', '', NULL);
INSERT INTO golden.hivelock_request VALUES ('d972c9c1946871f4', 'here/dag/run/forced/-1', 'ended', 'e03715fa10e946370000000000000014', 12, 0, 12, 12, 12, 3600, '{"dw":"S","dw.forced":"X"}', '[]', '', '', 1, '', 0, 1795643095309781, 1795643095309781, 12, 1795643095309781, 0, 0, NULL, NULL, 0, 0, NULL, 0, 1795643095309781, 1795646695309781, 1795643095403351, '', '', NULL);
INSERT INTO golden.hivelock_store VALUES (4, 0, 4, '0.1.0');
SELECT pg_catalog.setval('golden.hivelock_audit_number_seq', 1, true);
SELECT pg_catalog.setval('golden.hivelock_number', 12, true);
ALTER TABLE ONLY golden.hivelock_audit
    ADD CONSTRAINT hivelock_audit_pkey PRIMARY KEY (number);
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
