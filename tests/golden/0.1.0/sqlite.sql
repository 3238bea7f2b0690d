BEGIN TRANSACTION;
CREATE TABLE hivelock_audit (
	number INTEGER NOT NULL, 
	lease_id VARCHAR(40) NOT NULL, 
	owner TEXT NOT NULL, 
	locks TEXT NOT NULL, 
	user_name TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	more TEXT, 
	PRIMARY KEY (number)
);
INSERT INTO "hivelock_audit" VALUES(1,'','group spark-prod','{}','ops','3 leases, default weight 2 (as many as the cluster runs), before: no limit in the store',1795666100091000,NULL);
INSERT INTO "hivelock_audit" VALUES(2,'16','here/dag/run/forced/-1','{"dw":"S","dw.forced":"X"}','ops','its host is gone',1795666100101000,NULL);
CREATE TABLE hivelock_lease_group (
	group_key BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	leases INTEGER NOT NULL, 
	weight INTEGER NOT NULL, 
	comment TEXT NOT NULL, 
	more TEXT, 
	PRIMARY KEY (group_key)
);
INSERT INTO "hivelock_lease_group" VALUES(164515646930667396,'spark-prod',3,2,'as many as the cluster runs',NULL);
CREATE TABLE hivelock_lock (
	place BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	object_key BIGINT NOT NULL, 
	db_name TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	partition_name TEXT NOT NULL, 
	lease_type VARCHAR(1) NOT NULL, 
	PRIMARY KEY (place, position)
);
INSERT INTO "hivelock_lock" VALUES(1,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(1,1,7586232768815636808,'dw','airports','','s');
INSERT INTO "hivelock_lock" VALUES(1,2,3609830591634298543,'dw','flights','','s');
INSERT INTO "hivelock_lock" VALUES(1,3,-4583749755067427234,'dw','flights','dt=2013-01-01','x');
INSERT INTO "hivelock_lock" VALUES(4,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(4,1,3609830591634298543,'dw','flights','','s');
INSERT INTO "hivelock_lock" VALUES(4,2,-4583749755067427234,'dw','flights','dt=2013-01-01','x');
INSERT INTO "hivelock_lock" VALUES(5,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(5,1,3609830591634298543,'dw','flights','','s');
INSERT INTO "hivelock_lock" VALUES(5,2,-4583749755067427234,'dw','flights','dt=2013-01-01','x');
INSERT INTO "hivelock_lock" VALUES(9,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(9,1,802671632602547020,'dw','heavy','','x');
INSERT INTO "hivelock_lock" VALUES(11,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(11,1,-2446559617396450867,'dw','invited','','x');
INSERT INTO "hivelock_lock" VALUES(14,0,-5157592718535306128,'dw','','','s');
INSERT INTO "hivelock_lock" VALUES(14,1,-7316650213637917745,'dw','busy','','x');
CREATE TABLE hivelock_request (
	owner_key VARCHAR(16) NOT NULL, 
	owner TEXT NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	process VARCHAR(32) NOT NULL, 
	epoch BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	began BIGINT NOT NULL, 
	place BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	lease_s FLOAT NOT NULL, 
	locks TEXT NOT NULL, 
	works TEXT NOT NULL, 
	"query" TEXT NOT NULL, 
	named TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	lease_group TEXT NOT NULL, 
	most_leases BIGINT NOT NULL, 
	asked_us BIGINT NOT NULL, 
	seen_us BIGINT NOT NULL, 
	turn BIGINT NOT NULL, 
	turn_us BIGINT NOT NULL, 
	old_turn BIGINT NOT NULL, 
	old_turn_us BIGINT NOT NULL, 
	until_us BIGINT, 
	group_key BIGINT, 
	group_turn BIGINT NOT NULL, 
	group_turn_us BIGINT NOT NULL, 
	ahead BIGINT, 
	watched BIGINT NOT NULL, 
	granted_us BIGINT, 
	end_us BIGINT, 
	ended_us BIGINT, 
	given TEXT NOT NULL, 
	whole TEXT NOT NULL, 
	more TEXT, 
	weight BIGINT, 
	PRIMARY KEY (owner_key)
);
INSERT INTO "hivelock_request" VALUES('c7ca48fc1caac82f','here/dag/run/holds/-1','granted','100059f02f55497a0000000000000001',1,3,1,1,2,1800.0,'{"dw":"S","dw.airports":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}','[["job", "{\"kind\":\"process\"}", 2]]','INSERT OVERWRITE TABLE dw.flights','',7,'rerun',1,1795666100077000,1795666100077000,1,1795666100077000,0,0,NULL,3641733997789959691,0,0,NULL,1,1795666100077000,1795667900077000,NULL,'{"dw.flights/dt=2013-01-02":"X"}','dw',NULL,1);
INSERT INTO "hivelock_request" VALUES('690c59ff97ea94e0','here/dag/run/waits/-1','waiting','100059f02f55497a0000000000000002',4,2,4,4,0,3600.0,'{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}','[]','INSERT … for waits','writes a day',5,'',0,1357095845000000,1795666100085000,4,1795666100085000,0,0,NULL,NULL,0,0,1,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('b77207704d45f49e','here/dag/run/waits-urgently/-1','waiting','100059f02f55497a0000000000000003',5,2,5,5,0,3600.0,'{"dw":"S","dw.flights":"S","dw.flights/dt=2013-01-01":"X"}','[]','INSERT … for waits-urgently','',9,'',0,1795666100088000,1795666100088000,4,1795666100085000,0,0,NULL,NULL,0,0,1,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('2465f1650e1ec185','here/dag/run/parked/-1','parked','100059f02f55497a0000000000000004',6,2,6,6,0,3600.0,'{"dw":"S","dw.parked":"X"}','[]','INSERT … for parked','',1,'rerun',1,1795666100089000,1795666100089000,0,0,0,0,NULL,3641733997789959691,6,1795666100089000,-3641733997789959691,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('ea385254f3cd8374','here/dag/run/heavy/-1','granted','100059f02f55497a0000000000000005',9,0,9,9,9,3600.0,'{"dw":"S","dw.heavy":"X"}','[]','','',1,'spark-prod',10000,1795666100092000,1795666100092000,9,1795666100092000,0,0,NULL,164515646930667396,0,0,NULL,1,1795666100092000,1795669700092000,NULL,'','',NULL,3);
INSERT INTO "hivelock_request" VALUES('0cb75f9610514176','here/dag/run/heavy-by-default/-1','parked','100059f02f55497a0000000000000006',10,2,10,10,0,3600.0,'{"dw":"S","dw.heavy_too":"X"}','[]','INSERT … for heavy-by-default','',1,'spark-prod',10000,1795666100093000,1795666100093000,0,0,0,0,NULL,164515646930667396,10,1795666100093000,-164515646930667396,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('c48986ab1eefb97a','here/dag/run/invited/-1','invited','100059f02f55497a0000000000000007',11,2,11,11,0,3600.0,'{"dw":"S","dw.invited":"X"}','[]','INSERT … for invited','',1,'',0,1795666100094000,1795666100094000,11,1795666100094000,0,0,1795669700094000,NULL,0,0,NULL,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('3578b87d1884ecd0','here/dag/run/away/-1','away','100059f02f55497a0000000000000008',12,2,12,12,0,3600.0,'{"dw":"S","dw.away":"X"}','[]','INSERT … for away','',1,'',0,1795666100094000,1795666100094000,0,1795666100094000,0,0,NULL,NULL,0,0,NULL,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('e50297fd58ce291a','here/dag/run/was-invited/-1','away','100059f02f55497a0000000000000009',13,2,13,13,0,3600.0,'{"dw":"S","dw.busy":"X"}','[]','INSERT … for was-invited','',1,'',0,1795666100095000,1795666100095000,13,1795666100095000,0,0,1795666100096000,NULL,0,0,NULL,0,NULL,NULL,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('109d5d12d0a01b5e','here/dag/run/takes-its-turn/-1','granted','100059f02f55497a000000000000000a',14,0,14,14,14,3600.0,'{"dw":"S","dw.busy":"X"}','[]','','',1,'',0,1795666100096000,1795666100096000,14,1795666100096000,0,0,NULL,NULL,0,0,NULL,0,1795666100096000,1795669700096000,NULL,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('c4695d43744c1f77','here/dag/run/ended/-1','ended','100059f02f55497a000000000000000b',15,0,15,15,15,60.0,'{"dw":"S","dw.ended":"S"}','[]','','',1,'',0,1795666100098000,1795666100098000,15,1795666100098000,0,0,NULL,NULL,0,0,NULL,0,1795666100098000,1795666160098000,1795666100099000,'','',NULL,0);
INSERT INTO "hivelock_request" VALUES('d972c9c1946871f4','here/dag/run/forced/-1','ended','100059f02f55497a000000000000000c',16,0,16,16,16,3600.0,'{"dw":"S","dw.forced":"X"}','[]','','',1,'',0,1795666100100000,1795666100100000,16,1795666100100000,0,0,NULL,NULL,0,0,NULL,0,1795666100100000,1795669700100000,1795666100101000,'','',NULL,0);
CREATE TABLE hivelock_store (
	version INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	min_reader INTEGER, 
	raised_by VARCHAR(40), 
	PRIMARY KEY (version)
);
INSERT INTO "hivelock_store" VALUES(5,17,5,'0.1.0');
CREATE UNIQUE INDEX hivelock_request_place ON hivelock_request (place);
CREATE INDEX hivelock_request_ahead ON hivelock_request (ahead);
CREATE INDEX hivelock_request_group ON hivelock_request (group_key, state) WHERE group_key IS NOT NULL;
CREATE INDEX hivelock_lock_object ON hivelock_lock (object_key, place);
CREATE VIEW hivelock_lease AS SELECT hivelock_request.owner, hivelock_lock.place AS lease_id, hivelock_lock.db_name, hivelock_lock.table_name, hivelock_lock.partition_name, strftime('%Y-%m-%d %H:%M:%f', hivelock_request.granted_us / (1000000.0 + 0.0), 'unixepoch') AS start_utc, strftime('%Y-%m-%d %H:%M:%f', hivelock_request.end_us / (1000000.0 + 0.0), 'unixepoch') AS end_utc, hivelock_lock.lease_type 
FROM hivelock_lock JOIN hivelock_request ON hivelock_lock.place = hivelock_request.place 
WHERE hivelock_request.state = 'granted';
COMMIT;
