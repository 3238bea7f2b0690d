------------------------------ MODULE Scenarios ------------------------------
(***************************************************************************)
(* The cases that are checked: who wants what, and what can go wrong.      *)
(* tests/spec/cases.py says which of them run when.                        *)
(***************************************************************************)
EXTENDS TLC, Naturals, Sequences

Req(db, t, p, u) == LET all == [db |-> db, t |-> t, p |-> p, u |-> u]
                    IN  [o \in {o \in DOMAIN all : all[o] # "-"} |-> all[o]]
ReadT == Req("S", "S", "-", "-")
WriteT == Req("S", "X", "-", "-")
ReadP == Req("S", "S", "S", "-")
WriteP == Req("S", "S", "X", "-")
ReadU == Req("S", "-", "-", "S")
WriteU == Req("S", "-", "-", "X")
ReadDb == Req("S", "-", "-", "-")
WriteDb == Req("X", "-", "-", "-")
WriteTP == Req("S", "X", "X", "-")
WriteTU == Req("S", "X", "-", "X")
ReadTWriteU == Req("S", "S", "-", "X")
WriteTReadU == Req("S", "X", "-", "S")
(* Hive's LOCK TABLE takes no lock on the database or the table above.     *)
LockT == Req("-", "X", "-", "-")
ShareT == Req("-", "S", "-", "-")
LockP == Req("-", "-", "X", "-")

NoFaults == [crashes |-> 0, losses |-> 0, expiries |-> 0, unlocks |-> 0, giveups |-> 0, hivedeaths |-> 0,
             withdrawals |-> 0, limits |-> 0, changes |-> 0]
Case(requests, processes) ==
  [requests |-> requests,      \* owner -> its requests, one after the other
   processes |-> processes,    \* process -> owner; of one owner, the later process has the later call
   priority |-> [x \in DOMAIN requests |-> 1],
   change |-> [x \in DOMAIN requests |-> 1],  \* owner -> its priority after a person has changed it
   nowait |-> {},              \* owners that do not wait
   late |-> {},                \* owners whose task locks and works in one: they are invited
   rounds |-> 1,               \* how many invitations may end without a grant
   most |-> [x \in DOMAIN requests |-> 0],  \* owner -> the limit of its group of leases; 0: it has none
   weight |-> [x \in DOMAIN requests |-> 1],  \* owner -> how many permits it takes
   limits |-> <<>>,            \* the limits that a person stores, one after the other; 0 deletes it
   looks |-> TRUE,             \* FALSE: processes enter without a look
   hive |-> <<>>,              \* Hive's client -> its requests
   tries |-> 0,                \* how often Hive's client tries again
   patience |-> FALSE,         \* TRUE: patience with Hive's clients can be over
   made |-> {"db", "t", "u"},  \* objects that exist at the start
   holding |-> {},             \* processes that hold their lease at the start
   unlock |-> {},              \* objects on which UNLOCK deletes one node at a time
   sweep |-> {},               \* objects that UNLOCK deletes at once with all below them
   faults |-> NoFaults]
With(case, more) == more @@ case
Faults(f) == f @@ NoFaults
Alone(w) == Case([a |-> <<w>>], <<"a">>)
Two(v, w) == Case([a |-> <<v>>, b |-> <<w>>], <<"a", "b">>)
Three(v, w, z) == Case([a |-> <<v>>, b |-> <<w>>, c |-> <<z>>], <<"a", "b", "c">>)
Urgent(case) == With(case, [priority |-> [a |-> 1, b |-> 1, c |-> 2]])
Everything == {"db", "t", "p", "u"}

-----------------------------------------------------------------------------
(* Ours alone.                                                             *)
Tables == Three(WriteT, WriteT, ReadT)
Partitions == Three(WriteP, ReadP, WriteT)
Twice == Case([a |-> <<WriteT, ReadT>>, b |-> <<ReadT, WriteT>>], <<"a", "b">>)
ThreeTwice == Case([a |-> <<WriteP, ReadP>>, b |-> <<ReadP, WriteP>>, c |-> <<WriteT>>], <<"a", "b", "c">>)
Again == With(Case([a |-> <<WriteT, WriteT>>, b |-> <<WriteT>>], <<"a", "b">>), [holding |-> {1}])
Crosswise == Three(ReadTWriteU, WriteTReadU, WriteTU)
Database == Two(WriteT, WriteDb)
DatabaseAndTables == Three(WriteT, WriteU, WriteDb)
NothingExists == With(Three(WriteP, ReadP, WriteU), [made |-> {}])
NoWait == With(Three(WriteP, WriteP, WriteT), [nowait |-> {"a", "b"}])
NoLook == With(Three(WriteT, ReadT, WriteT), [looks |-> FALSE])

(* Claims: c has a higher priority.                                        *)
Claims == Urgent(Three(WriteP, WriteP, WriteP))
ClaimsOnTable == Urgent(Three(WriteT, WriteT, WriteT))
ClaimsInTwoQueues == Urgent(Three(WriteTU, WriteTReadU, ReadTWriteU))
TwoClaims == With(Three(WriteT, WriteT, WriteT), [priority |-> [a |-> 1, b |-> 2, c |-> 3]])
(* a is in the background, or a and b are.                                 *)
ClaimBeforeBackground == With(Three(WriteT, WriteT, WriteT), [priority |-> [a |-> 0, b |-> 1, c |-> 2]])
BackgroundInTwoQueues == With(ClaimsInTwoQueues, [priority |-> [a |-> 0, b |-> 0, c |-> 1]])
BackgroundAndHive == With(Two(WriteT, WriteT), [hive |-> [h |-> <<LockT>>], patience |-> TRUE,
                                                priority |-> [a |-> 0, b |-> 1]])
ClaimAndNextProcess == With(Urgent(Case([a |-> <<WriteP>>, b |-> <<WriteP>>, c |-> <<WriteP>>], <<"a", "b", "c", "a">>)),
                            [holding |-> {2}, made |-> Everything])
ClaimAndCrash == With(Claims, [faults |-> Faults([crashes |-> 1])])

(* Hive's clients.                                                         *)
HiveBeside == With(Alone(WriteP), [hive |-> [h |-> <<ReadP>>], tries |-> 1])
HiveBelow == With(Case([a |-> <<WriteT, WriteT>>], <<"a">>), [hive |-> [h |-> <<LockP>>], tries |-> 2])
HiveAndTwo == With(Two(WriteT, ReadT), [hive |-> [h |-> <<WriteT>>]])
HiveAndDatabase == With(Two(WriteDb, ReadT), [hive |-> [h |-> <<WriteT>>], tries |-> 1])
HiveMakesAndDeletes == With(Case([a |-> <<WriteP, ReadP>>], <<"a">>),
                            [hive |-> [h |-> <<WriteP>>], tries |-> 1, made |-> {}])
HiveDies == With(Two(WriteT, ReadT), [hive |-> [h |-> <<LockT>>], faults |-> Faults([hivedeaths |-> 1])])
Patience == With(Alone(WriteT), [hive |-> [h |-> <<LockT, ShareT>>], tries |-> 1, patience |-> TRUE])
PatienceOfTwo == With(Two(WriteT, ReadT), [hive |-> [h |-> <<LockT, ShareT>>], tries |-> 1, patience |-> TRUE])
PatienceAndTables == With(Two(WriteTU, ReadTWriteU), [hive |-> [h |-> <<WriteTU>>], patience |-> TRUE])
PatienceAndClaim == With(Two(WriteT, WriteT),
                         [hive |-> [h |-> <<LockT>>], patience |-> TRUE, priority |-> [a |-> 1, b |-> 2]])

(* UNLOCK TABLE.                                                           *)
Unlock == With(Two(ReadP, ReadP), [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 2])])
UnlockHolder == With(Case([a |-> <<ReadP>>, b |-> <<ReadP, ReadP>>], <<"a", "b">>),
                     [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 3]), holding |-> {1}, made |-> Everything])
UnlockTwoLevels == With(Case([a |-> <<ReadP>>, b |-> <<ReadP, ReadP>>], <<"a", "b">>),
                        [sweep |-> {"t", "p"}, faults |-> Faults([unlocks |-> 2]), holding |-> {1}, made |-> Everything])
UnlockDatabase == With(Three(ReadT, ReadU, ReadT),
                       [sweep |-> {"db"}, made |-> {"db", "t"}, faults |-> Faults([unlocks |-> 1]), holding |-> {1}])
UnlockDatabaseAndLoss == With(UnlockDatabase, [faults |-> Faults([unlocks |-> 1, losses |-> 1])])
UnlockTwice == With(Case([a |-> <<ReadT, ReadT>>, b |-> <<ReadT, ReadT>>], <<"a", "b">>),
                    [unlock |-> {"t"}, faults |-> Faults([unlocks |-> 3])])
UnlockEverything == With(Two(ReadT, ReadU), [unlock |-> Everything, faults |-> Faults([unlocks |-> 5])])
UnlockWriters == With(Case([a |-> <<WriteP, WriteP>>, b |-> <<WriteP>>], <<"a", "b">>),
                      [unlock |-> {"p"}, faults |-> Faults([unlocks |-> 4])])
UnlockAndHive == With(Alone(ReadP),
                      [hive |-> [h |-> <<ReadP>>], unlock |-> {"p"}, faults |-> Faults([unlocks |-> 2])])
UnlockAndPatience == With(Two(WriteT, WriteT), [hive |-> [h |-> <<ShareT>>], patience |-> TRUE, unlock |-> {"t"},
                                                faults |-> Faults([unlocks |-> 2])])
UnlockPlaceholder == With(Two(WriteT, ReadT), [hive |-> [h |-> <<ShareT>>], patience |-> TRUE, sweep |-> {"t"},
                                               faults |-> Faults([unlocks |-> 1, giveups |-> 1])])
UnlockReaders == With(Two(ReadT, ReadP), [hive |-> [h |-> <<LockT>>], patience |-> TRUE, sweep |-> {"t"},
                                          faults |-> Faults([unlocks |-> 1, giveups |-> 1])])
UnlockOvertaken == With(Two(WriteT, WriteTP), [hive |-> [h |-> <<ShareT, LockP>>], patience |-> TRUE, sweep |-> {"t"},
                                               faults |-> Faults([unlocks |-> 1]), priority |-> [a |-> 1, b |-> 2]])
UnlockGivenBack == With(Case([a |-> <<WriteP, WriteP>>, b |-> <<WriteP>>], <<"a", "b">>),
                        [sweep |-> {"p"}, faults |-> Faults([unlocks |-> 1]), holding |-> {1}, made |-> Everything,
                         looks |-> FALSE])
UnlockPlaceholderAndSession == With(UnlockPlaceholder, [faults |-> Faults([unlocks |-> 1, expiries |-> 1])])
UnlockAndLoss == With(Unlock, [faults |-> Faults([unlocks |-> 2, losses |-> 1])])

(* Crashes, ends of sessions, lost replies, take-over.                     *)
NextProcess == With(Case([a |-> <<WriteT>>, b |-> <<WriteT>>], <<"a", "a", "b">>),
                    [faults |-> Faults([crashes |-> 1])])
NextProcessAndLoss == With(NextProcess, [faults |-> Faults([crashes |-> 1, losses |-> 1])])
NextProcessAndHive == With(Case([a |-> <<WriteT>>], <<"a", "a">>),
                           [hive |-> [h |-> <<ReadT>>], tries |-> 1, faults |-> Faults([crashes |-> 1, losses |-> 1])])
LostReplies == With(Case([a |-> <<WriteT, ReadT>>, b |-> <<WriteT>>], <<"a", "b">>),
                    [faults |-> Faults([losses |-> 2, giveups |-> 1])])
Withdrawals == With(Case([a |-> <<WriteT>>, b |-> <<WriteT, ReadT>>], <<"a", "b">>),
                    [holding |-> {1}, faults |-> Faults([withdrawals |-> 1, losses |-> 1])])
WithdrawnPlaceholder == With(Two(WriteT, WriteT),
                             [hive |-> [h |-> <<LockT>>], patience |-> TRUE, faults |-> Faults([withdrawals |-> 1])])
ChangedPriority == With(Three(WriteT, WriteT, WriteT), [priority |-> [a |-> 1, b |-> 1, c |-> 2], holding |-> {2},
                                                change |-> [a |-> 2, b |-> 1, c |-> 1], faults |-> Faults([changes |-> 1])])
ChangedOvertaken == With(Three(WriteTU, WriteU, WriteT), [priority |-> [a |-> 1, b |-> 1, c |-> 2], holding |-> {2},
                                                          change |-> [a |-> 3, b |-> 1, c |-> 2],
                                                          faults |-> Faults([changes |-> 1])])
ChangedBackground == With(ChangedPriority, [priority |-> [a |-> 0, b |-> 1, c |-> 1], change |-> [a |-> 1, b |-> 0, c |-> 0]])
ChangedToFirst == With(ChangedPriority, [change |-> [a |-> 3, b |-> 1, c |-> 1]])
ChangesTwice == With(ChangedToFirst, [faults |-> Faults([changes |-> 2, losses |-> 1])])
ChangesAndCrash == With(ChangedPriority, [faults |-> Faults([changes |-> 1, crashes |-> 1])])
ChangedPlaceholder == With(Two(WriteT, WriteT), [hive |-> [h |-> <<LockT>>], patience |-> TRUE, change |-> [a |-> 2, b |-> 2],
                                                 faults |-> Faults([changes |-> 1])])
SessionEnds == With(Tables, [faults |-> Faults([expiries |-> 1])])
DeadWaiter == With(Three(WriteT, WriteT, WriteT), [holding |-> {1}, faults |-> Faults([crashes |-> 1])])
BothProcesses == With(Case([a |-> <<WriteT>>, b |-> <<WriteT>>, c |-> <<ReadT>>], <<"a", "a", "b", "c">>),
                      [faults |-> Faults([expiries |-> 1])])
UnlockTakenOver == With(Case([a |-> <<ReadT>>], <<"a", "a">>),
                        [unlock |-> {"t"}, holding |-> {1}, faults |-> Faults([losses |-> 1, unlocks |-> 1])])
UnlockAndNextProcess == With(Case([a |-> <<ReadT>>, b |-> <<ReadT>>], <<"a", "a", "b">>),
                             [unlock |-> {"t"}, faults |-> Faults([crashes |-> 1, unlocks |-> 2])])
PatienceAndNextProcess == With(Case([a |-> <<WriteT>>], <<"a", "a">>), [hive |-> [h |-> <<ReadT>>], patience |-> TRUE,
                                                                       faults |-> Faults([crashes |-> 1, losses |-> 1])])

-----------------------------------------------------------------------------
(* Invitations. The processes of owners with deferred grants are in the    *)
(* triggerer, then on a worker.                                            *)
LateOf(case, late) == With(case, [late |-> late])
Invited1 == LateOf(Two(WriteT, WriteT), {"a"})
Invited2 == LateOf(Two(WriteT, WriteT), {"a", "b"})
InvitedRounds == With(Invited2, [rounds |-> 2])
InvitedThree == LateOf(Tables, {"a", "b"})
InvitedUrgent == With(LateOf(Two(WriteT, WriteT), {"a"}), [priority |-> [a |-> 1, b |-> 2]])
InvitedUrgentBoth == With(Invited2, [priority |-> [a |-> 1, b |-> 2]])
InvitedBackground == With(Invited2, [priority |-> [a |-> 0, b |-> 1]])
ChangedInvited == With(InvitedUrgentBoth, [change |-> [a |-> 3, b |-> 1], faults |-> Faults([changes |-> 1])])
InvitedUrgentLate == With(LateOf(Tables, {"a", "b"}), [priority |-> [a |-> 1, b |-> 2, c |-> 1]])
InvitedAndTable == LateOf(Three(WriteP, WriteP, WriteT), {"a"})
InvitedHive == With(LateOf(Alone(WriteT), {"a"}), [hive |-> [h |-> <<WriteT>>]])
InvitedHiveAndTwo == With(LateOf(Two(WriteT, ReadT), {"a"}), [hive |-> [h |-> <<WriteT>>]])
InvitedDies == With(LateOf(Two(WriteT, WriteT), {"a"}), [faults |-> Faults([crashes |-> 1])])
InvitedTwoDie == With(Invited2, [faults |-> Faults([crashes |-> 2])])
InvitedNext == LateOf(Case([a |-> <<WriteT>>, b |-> <<WriteT>>], <<"a", "a", "b">>), {"a"})
InvitedTaken == With(LateOf(Case([a |-> <<WriteT>>], <<"a", "a">>), {"a"}), [faults |-> Faults([crashes |-> 1])])
InvitedNextAndCrash == With(InvitedNext, [faults |-> Faults([crashes |-> 1])])
InvitedLosses == With(Invited2, [faults |-> Faults([losses |-> 1])])
InvitedNoWait == With(LateOf(Two(WriteT, WriteT), {"a"}), [nowait |-> {"b"}])
InvitedUnlock == With(LateOf(Two(ReadT, WriteT), {"a"}), [unlock |-> {"t"}, faults |-> Faults([unlocks |-> 2])])
InvitedPatience == With(Invited1, [hive |-> [h |-> <<LockT>>], patience |-> TRUE])

(* Groups of leases: permits. c has a larger limit.                        *)
Group == With(Two(WriteT, WriteU), [most |-> [a |-> 1, b |-> 1]])
GroupOfTwoLimits == With(Three(WriteT, WriteU, ReadDb), [most |-> [a |-> 1, b |-> 2, c |-> 2]])
GroupInvited == LateOf(Group, {"a", "b"})
GroupInvitedSame == With(LateOf(Two(WriteT, WriteT), {"a"}), [most |-> [a |-> 1, b |-> 1]])
GroupWithdrawn == With(Group, [faults |-> Faults([withdrawals |-> 2])])
(* The limit in the store changes while requests hold and wait.            *)
Limits(case, limits) == With(case, [limits |-> limits, faults |-> Faults([limits |-> Len(limits)])])
GroupLowered == Limits(With(Two(WriteT, WriteU), [most |-> [a |-> 2, b |-> 2]]), <<1>>)
GroupRaised == Limits(Group, <<2>>)
GroupLimits == Limits(With(Three(WriteT, WriteU, ReadDb), [most |-> [a |-> 1, b |-> 2, c |-> 1]]), <<2, 1, 0>>)
GroupLimitsInvited == Limits(GroupInvited, <<2, 1>>)
(* b weighs two.                                                           *)
Heavy(case, most) == With(case, [weight |-> [a |-> 1, b |-> 2, c |-> 1], most |-> [a |-> most, b |-> most, c |-> most]])
GroupHeavy == Heavy(Three(WriteT, WriteU, ReadDb), 2)
GroupTooHeavy == Limits(Heavy(Three(WriteT, WriteU, ReadDb), 2), <<1>>)
GroupHeavyInvited == LateOf(With(Two(WriteT, WriteU), [weight |-> [a |-> 1, b |-> 2], most |-> [a |-> 2, b |-> 2]]), {"b"})
GroupInvitedDies == With(GroupInvited, [faults |-> Faults([crashes |-> 1, losses |-> 1])])
=============================================================================
