"""The race: two real Spark jobs on one Hive table at the same moment, without locks and with ours."""
