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
    "InvitedHoldsNothing",
    "InvitationsHaveAnEnd",
    "PermitsMatchRecords",
    "NothingIsLeftForAPerson",
)
MISTAKEN = "NoNodeIsMistaken"
STEPS = (
    *(MISTAKEN, "InvitedAtItsTurn", "InvitedKeepsItsPlace", "OldPlacesAreFair", "WithdrawnStaysOut"),
    *("LimitIsKept", "LimitTakesNoLease", "HeavyIsNotStarved", "ChangesAreFair"),
)
ENDS = "EveryRunEnds"

# The promises of spec/Leases.tla.
LEASES = "LeaseScenarios"
LEASE_INVARIANTS = ("LockOutlivesItsWorker", "FreedOnceItsJobHasEnded", "OneJobOfALease", "NoLateUpdate")
LEASE_STEPS = ("TokenOnlyGrows",)

# The promises of spec/Formats.tla.
FORMATS = "FormatScenarios"
FORMAT_INVARIANTS = (
    "NoTwoLeases",
    "TooOldGetsNothing",
    "RefusedHoldsNothing",
    "OnlyTooOldIsRefused",
    "NothingLeft",
)
FORMAT_STEPS = ("FieldsAreKept",)

PROMISES = {
    "Locks": (INVARIANTS, STEPS),
    LEASES: (LEASE_INVARIANTS, LEASE_STEPS),
    FORMATS: (FORMAT_INVARIANTS, FORMAT_STEPS),
}


@dataclass(frozen=True)
class Case:
    """A scenario of spec/Scenarios.tla with one rule left out, or none. *module* names another file of scenarios.

    ``breaks`` is the promise that breaks without the rule. ``ends`` also checks that every run ends, which takes twice
    the time. ``full``: only with FULL=1.
    """

    scenario: str
    left_out: str = ""
    breaks: str = ""
    ends: bool = False
    full: bool = False
    module: str = "Locks"

    @property
    def name(self) -> str:
        return f"{self.scenario} without {self.left_out}" if self.left_out else self.scenario

    @property
    def invariants(self) -> tuple[str, ...]:
        return tuple(name for name in PROMISES[self.module][0] if not self.breaks or name == self.breaks)

    @property
    def properties(self) -> tuple[str, ...]:
        steps = PROMISES[self.module][1]
        if self.breaks:
            return (self.breaks,) if self.breaks in (*steps, ENDS) else ()
        return (*steps, ENDS) if self.ends else steps


def _hold(*scenarios: str, ends: bool = False, full: bool = False) -> tuple[Case, ...]:
    return tuple(Case(name, ends=ends, full=full) for name in scenarios)


def _leases(*scenarios: str, full: bool = False) -> tuple[Case, ...]:
    return tuple(Case(name, full=full, module=LEASES) for name in scenarios)


def _lease_rule(scenario: str, left_out: str, breaks: str) -> Case:
    return Case(scenario, left_out, breaks, module=LEASES)


def _formats(*scenarios: str, ends: bool = False, full: bool = False) -> tuple[Case, ...]:
    return tuple(Case(name, ends=ends, full=full, module=FORMATS) for name in scenarios)


def _format_rule(scenario: str, left_out: str, breaks: str) -> Case:
    return Case(scenario, left_out, breaks, module=FORMATS)


CASES = (
    *_formats("Raised", "StampMadeAgain", ends=True),
    *_formats("RaisedInDatabase", "RaisedTwice", "SideBySide"),
    *_formats("RaisedByTwoKeepers", "RaisedByTwoKeepersInDatabase", "SideBySideInDatabase", ends=True, full=True),
    _format_rule("Raised", "GrantChecksTheStamp", "NoTwoLeases"),
    _format_rule("RaisedInDatabase", "GrantChecksTheStamp", "TooOldGetsNothing"),
    _format_rule("RaisedByTwoKeepers", "ForceChecksTheStamp", "TooOldGetsNothing"),
    _format_rule("StampMadeAgain", "VersionIsTheFormat", "NoTwoLeases"),
    _format_rule("RaisedInDatabase", "MigrationWaits", "TooOldGetsNothing"),
    _format_rule("RaisedInDatabase", "LowestReaderIsRaisedFirst", "TooOldGetsNothing"),
    _format_rule("Raised", "RefusedWaitersLeave", "RefusedHoldsNothing"),
    _format_rule("Raised", "OwnLeasesNeedNoStamp", "RefusedHoldsNothing"),
    _format_rule("SideBySide", "LowestReaderDecides", "OnlyTooOldIsRefused"),
    _format_rule("SideBySide", "UnknownFieldsAreKept", "FieldsAreKept"),
    *_leases("Retry", "Zombie", "CutOff", "ByHand", "ByHandAndRetry"),
    *_leases("Everything", "ThreeTries", full=True),
    _lease_rule("Retry", "WorkIsRecordedFirst", "LockOutlivesItsWorker"),
    _lease_rule("Retry", "UnknownSubmissionsKeepLocks", "LockOutlivesItsWorker"),
    _lease_rule("Retry", "TimeFreesNothing", "LockOutlivesItsWorker"),
    _lease_rule("Retry", "KeeperAsksForTheWork", "LockOutlivesItsWorker"),
    _lease_rule("Retry", "KeeperComparesTheLease", "LockOutlivesItsWorker"),
    _lease_rule("Zombie", "EpochIsCompared", "LockOutlivesItsWorker"),
    _lease_rule("Retry", "EarlierWorkEndsFirst", "OneJobOfALease"),
    _lease_rule("Retry", "JobIsRecorded", "FreedOnceItsJobHasEnded"),
    _lease_rule("CutOff", "StartedWorkHasNewToken", "NoLateUpdate"),
    _lease_rule("ByHand", "GrantHasNewToken", "TokenOnlyGrows"),
    _lease_rule("ByHand", "TokenIsChecked", "NoLateUpdate"),
    _lease_rule("ByHand", "ChangeIsComparedAndSet", "NoLateUpdate"),
    *_hold("Database", "HiveBelow", "UnlockTakenOver", ends=True),
    *_hold("NoWait", "HiveBeside", "Patience", "UnlockHolder", "UnlockGivenBack"),
    *_hold("DeadWaiter", "LostReplies", "Withdrawals", "ChangedPriority", "ChangedBackground"),
    *_hold("Invited1", ends=True),
    *_hold(
        "Invited2",
        "InvitedUrgentBoth",
        "InvitedBackground",
        "InvitedDies",
        "InvitedTaken",
        "InvitedNoWait",
        "InvitedHive",
        "GroupInvited",
    ),
    *_hold("GroupLowered", "GroupRaised", ends=True),
    *_hold("GroupHeavy", "GroupHeavyInvited"),
    Case("Invited2", "LateRequestsQueueFirst", "InvitedAtItsTurn"),
    Case("Invited1", "InvitedRequestsBlock", "EarlierGoesFirst"),
    Case("Invited1", "InvitationsEnd", "InvitationsHaveAnEnd"),
    Case("Invited1", "EndComparesTheRecord", "LeaseHasItsNodes"),
    Case("Invited1", "EndDeletesTickets", "InvitedHoldsNothing"),
    Case("Invited1", "RoundsAreBounded", "NoEndlessRound"),
    Case("InvitedUrgent", "WorkersGrantIsVerified", "NoTwoConflictingLeases"),
    Case("InvitedBackground", "OvertakenRecordsAreRead", "NoTwoConflictingLeases"),
    Case("BackgroundAndHive", "OvertakenRecordsAreWatched", "NoDeadlock", full=True),
    Case("Invited1", "OvertakenRecordsAreRead", "NoTwoConflictingLeases"),
    Case("InvitedUrgentBoth", "MoreUrgentIsNotPassed", "OldPlacesAreFair"),
    Case("InvitedAndTable", "WideIsNotPassed", "OldPlacesAreFair"),
    Case("InvitedDies", "KeeperFreesInvited", "NothingIsLeftForAPerson"),
    Case("GroupOfTwoLimits", "PermitsAreCounted", "LimitIsKept"),
    Case("GroupLowered", "StoredLimitWins", "LimitIsKept"),
    Case("GroupLowered", "LimitRaisesTheVersion", "LimitIsKept"),
    Case("GroupLowered", "HoldersKeepTheirPermits", "LimitTakesNoLease"),
    Case("GroupHeavy", "HeavyIsNotPassed", "HeavyIsNotStarved"),
    Case("GroupTooHeavy", "TooHeavyIsRefused", "NoDeadlock"),
    Case("GroupInvited", "PermitIsTakenWithTheInvitation", "PermitsMatchRecords"),
    Case("GroupInvited", "EndGivesThePermitBack", "PermitsMatchRecords"),
    Case("GroupInvited", "GroupEndsInvitations", "InvitationsHaveAnEnd"),
    Case("Tables", "GrantsAreVerified", "NoTwoConflictingLeases"),
    Case("Database", "DatabaseQueueIsRead", "NoTwoConflictingLeases"),
    Case("Claims", "OvertakenRecordsAreRead", "NoTwoConflictingLeases", full=True),
    Case("ClaimsOnTable", "EarlierClaimsAreHeeded", "NoTwoConflictingLeases", full=True),
    Case("ClaimAndNextProcess", "LaterClaimsAreIgnored", "ReturnedLeaseIsNotTakenBack", full=True),
    Case("PatienceAndClaim", "OvertakenRecordsAreWatched", "NoDeadlock", full=True),
    Case("Again", "TicketsAreKnownByPath", "NoDeadlock"),
    Case("HiveBeside", "HivesNodesAreRead", "OursAndHiveNeverBothHold"),
    Case("HiveBelow", "ObjectsBelowAreRead", "OursAndHiveNeverBothHold"),
    Case("Unlock", "MissingNodesAreFoundAgain", "NoEndlessRound"),
    Case("Unlock", "AgeOfObjectsIsCompared", MISTAKEN),
    Case("UnlockHolder", "OlderTicketsAreMarked", "LeaseHasItsNodes"),
    Case("UnlockHolder", "OwnNodesAreReadAgain", "LeaseHasItsNodes"),
    Case("UnlockGivenBack", "OnlyWaitersAreSkipped", "LeaseHasItsNodes"),
    Case("UnlockGivenBack", "OwnNodesAreReadAfterWaiters", "LeaseHasItsNodes"),
    Case("UnlockReaders", "OnlyRivalsAreBehind", "LeaseHasItsNodes", full=True),
    Case("UnlockOvertaken", "OvertakenAreNotBehind", "LeaseHasItsNodes", full=True),
    Case("UnlockHolder", "QueuesAreReadBeforeObjects", "LeaseHasItsNodes"),
    Case("UnlockHolder", "RecordsAreComparedAndSet", "LeaseHasItsNodes"),
    Case("UnlockHolder", "RereadForgetsPaths", "LeaseHasItsNodes"),
    Case("UnlockTwoLevels", "LostRecordsAreMarkedAgain", "LeaseHasItsNodes", full=True),
    Case("UnlockDatabase", "NewDatabaseReadsAllQueues", "LeaseHasItsNodes"),
    Case("UnlockDatabase", "OwnNodesAreReadAfterAllQueues", "LeaseHasItsNodes"),
    Case("UnlockDatabaseAndLoss", "DatabasesAreRememberedAtTheEnd", "LeaseHasItsNodes", full=True),
    Case("UnlockTakenOver", "TakeOverIsRemembered", "ReturnedLeaseIsNotTakenBack"),
    Case("Withdrawals", "EndedCallsStop", "WithdrawnStaysOut"),
    Case("ChangedOvertaken", "ChangedTicketsAreNew", "NoTwoConflictingLeases"),
    Case("ChangedBackground", "OvertakenAreHeededAtOnce", "NoTwoConflictingLeases"),
    Case("ChangedPriority", "RaisedKeepsItsTurn", "ChangesAreFair"),
    Case("ChangedPriority", "LoweredIsANewArrival", "ChangesAreFair"),
    Case("ChangedToFirst", "OwnRecordIsWatched", "NoDeadlock"),
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
        "Invited2",
        ends=True,
        full=True,
    ),
    *_hold(
        "InvitedRounds",
        "InvitedUrgent",
        "InvitedLosses",
        "Group",
        "GroupOfTwoLimits",
        "GroupInvitedSame",
        "GroupWithdrawn",
        "GroupLimits",
        "GroupLimitsInvited",
        "WithdrawnPlaceholder",
        "ChangedToFirst",
        "ChangesTwice",
        "ChangesAndCrash",
        "ChangedPlaceholder",
        "ChangedInvited",
        full=True,
    ),
    *_hold("NextProcess", "ClaimsOnTable", "GroupTooHeavy", "ChangedOvertaken", full=True),
    *_hold("InvitedNext", "InvitedNextAndCrash", "InvitedTwoDie", "InvitedThree", "InvitedUrgentLate", full=True),
    *_hold("InvitedAndTable", "InvitedHiveAndTwo", "InvitedPatience", "InvitedUnlock", "GroupInvitedDies", full=True),
    *_hold("ThreeTwice", "Crosswise", "DatabaseAndTables", "NoLook", full=True),
    *_hold("ClaimBeforeBackground", "BackgroundInTwoQueues", "BackgroundAndHive", full=True),
    *_hold("ClaimsInTwoQueues", "TwoClaims", "ClaimAndNextProcess", "ClaimAndCrash", full=True),
    *_hold("HiveAndTwo", "HiveAndDatabase", "HiveMakesAndDeletes", "HiveDies", full=True),
    *_hold("PatienceOfTwo", "PatienceAndTables", "PatienceAndClaim", "PatienceAndNextProcess", full=True),
    *_hold("UnlockTwoLevels", "UnlockDatabase", "UnlockDatabaseAndLoss", "UnlockTwice", "UnlockEverything", full=True),
    *_hold(
        "UnlockWriters",
        "UnlockAndHive",
        "UnlockAndPatience",
        "UnlockPlaceholder",
        "UnlockReaders",
        "UnlockOvertaken",
        "UnlockPlaceholderAndSession",
        "UnlockAndLoss",
        full=True,
    ),
    *_hold(
        "NextProcessAndLoss", "NextProcessAndHive", "SessionEnds", "BothProcesses", "UnlockAndNextProcess", full=True
    ),
)
