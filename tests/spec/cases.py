"""The configurations that TLC checks: scenarios that must hold, and rules that are missed when they are left out."""

from __future__ import annotations

from dataclasses import dataclass

# The promises of spec/Locks.tla: each holds in each scenario.
INVARIANTS = (
    "NoTwoConflictingLeases",
    "LeaseHasItsNodes",
    "OursAndHiveNeverBothHold",
    "ReturnedLeaseIsNotTakenBack",
    "LostOnlyAfterUnlock",
    "EarlierGoesFirst",
    "NothingLeft",
    "NoDeadlock",
    "DeadWaitersBlockNoOther",
    "NoEndlessRound",
)
MISTAKEN = "NoNodeIsMistaken"
ENDS = "EveryRunEnds"


@dataclass(frozen=True)
class Case:
    """A scenario of spec/Scenarios.tla with one rule left out, or none.

    ``breaks`` is the promise that breaks without the rule. ``ends`` also checks that every run ends, which takes twice
    the time. ``full``: only with FULL=1.
    """

    scenario: str
    left_out: str = ""
    breaks: str = ""
    ends: bool = False
    full: bool = False

    @property
    def name(self) -> str:
        return f"{self.scenario} without {self.left_out}" if self.left_out else self.scenario

    @property
    def invariants(self) -> tuple[str, ...]:
        return tuple(name for name in INVARIANTS if not self.breaks or name == self.breaks)

    @property
    def properties(self) -> tuple[str, ...]:
        if self.breaks:
            return (self.breaks,) if self.breaks in (MISTAKEN, ENDS) else ()
        return (MISTAKEN, ENDS) if self.ends else (MISTAKEN,)


def _hold(*scenarios: str, ends: bool = False, full: bool = False) -> tuple[Case, ...]:
    return tuple(Case(name, ends=ends, full=full) for name in scenarios)


CASES = (
    *_hold("Database", "HiveBelow", "UnlockTakenOver", ends=True),
    *_hold("Twice", "NothingExists", "NoWait", "ClaimsOnTable", "HiveBeside", "Patience", "Unlock", "UnlockHolder"),
    *_hold("DeadWaiter", "NextProcess", "LostReplies"),
    Case("Tables", "GrantsAreVerified", "NoTwoConflictingLeases"),
    Case("Database", "DatabaseQueueIsRead", "NoTwoConflictingLeases"),
    Case("Claims", "OvertakenRecordsAreRead", "NoTwoConflictingLeases"),
    Case("ClaimsOnTable", "EarlierClaimsAreHeeded", "NoTwoConflictingLeases"),
    Case("ClaimAndNextProcess", "LaterClaimsAreIgnored", "ReturnedLeaseIsNotTakenBack"),
    Case("PatienceAndClaim", "OvertakenRecordsAreWatched", "NoDeadlock"),
    Case("Again", "TicketsAreKnownByPath", "NoDeadlock"),
    Case("HiveBeside", "HivesNodesAreRead", "OursAndHiveNeverBothHold"),
    Case("HiveBelow", "ObjectsBelowAreRead", "OursAndHiveNeverBothHold"),
    Case("Unlock", "MissingNodesAreFoundAgain", "LostOnlyAfterUnlock"),
    Case("Unlock", "AgeOfObjectsIsCompared", MISTAKEN),
    Case("UnlockHolder", "OlderTicketsAreMarked", "LeaseHasItsNodes"),
    Case("UnlockHolder", "OwnNodesAreReadAgain", "LeaseHasItsNodes"),
    Case("UnlockHolder", "QueuesAreReadBeforeObjects", "LeaseHasItsNodes"),
    Case("UnlockHolder", "RecordsAreComparedAndSet", "LeaseHasItsNodes"),
    Case("UnlockHolder", "RereadForgetsPaths", "LeaseHasItsNodes"),
    Case("UnlockTwoLevels", "LostRecordsAreMarkedAgain", "LeaseHasItsNodes"),
    Case("UnlockDatabase", "NewDatabaseReadsAllQueues", "LeaseHasItsNodes"),
    Case("UnlockDatabase", "OwnNodesAreReadAfterAllQueues", "LeaseHasItsNodes"),
    Case("UnlockDatabaseAndLoss", "DatabasesAreRememberedAtTheEnd", "LeaseHasItsNodes", full=True),
    Case("UnlockTakenOver", "TakeOverIsRemembered", "ReturnedLeaseIsNotTakenBack"),
    Case("NextProcess", "TakenOverGrantsAreVerified", "NoTwoConflictingLeases"),
    Case("DeadWaiter", "DeadRequestsAreBroken", "DeadWaitersBlockNoOther"),
    *_hold(
        "Tables",
        "Partitions",
        "Twice",
        "NothingExists",
        "NoWait",
        "Claims",
        "Unlock",
        "UnlockHolder",
        "LostReplies",
        "DeadWaiter",
        ends=True,
        full=True,
    ),
    *_hold("ThreeTwice", "Crosswise", "DatabaseAndTables", "NoLook", full=True),
    *_hold("ClaimsInTwoQueues", "TwoClaims", "ClaimAndNextProcess", "ClaimAndCrash", full=True),
    *_hold("HiveAndTwo", "HiveAndDatabase", "HiveMakesAndDeletes", "HiveDies", full=True),
    *_hold("PatienceOfTwo", "PatienceAndTables", "PatienceAndClaim", "PatienceAndNextProcess", full=True),
    *_hold("UnlockTwoLevels", "UnlockDatabase", "UnlockDatabaseAndLoss", "UnlockTwice", "UnlockEverything", full=True),
    *_hold(
        "UnlockWriters",
        "UnlockAndHive",
        "UnlockAndPatience",
        "UnlockPlaceholder",
        "UnlockPlaceholderAndSession",
        "UnlockAndLoss",
        full=True,
    ),
    *_hold(
        "NextProcessAndLoss", "NextProcessAndHive", "SessionEnds", "BothProcesses", "UnlockAndNextProcess", full=True
    ),
)
