---------------------------- MODULE FormatScenarios ----------------------------
(***************************************************************************)
(* The cases of Formats.tla that are checked.                              *)
(***************************************************************************)
EXTENDS Formats

NoFaults == [crashes |-> 0, deletions |-> 0]
Run(processes, database, faults) == [processes |-> processes, database |-> database, faults |-> faults @@ NoFaults]
Old(x) == [format |-> 1, lowest |-> 1, owner |-> x]
Beside(x) == [format |-> 2, lowest |-> 1, owner |-> x]  \* a next version that leaves the lowest reader
New(x) == [format |-> 2, lowest |-> 2, owner |-> x]     \* one that raises it

(* The lowest reader is raised.                                            *)
Mixed == <<Old("a"), Old("b"), New("c"), Old("keeper"), New("keeper")>>
Few == <<Old("a"), Old("b"), New("c"), New("keeper")>>
Raised == Run(Few, FALSE, [crashes |-> 1])
RaisedInDatabase == Run(Few, TRUE, [crashes |-> 1])
RaisedByTwoKeepers == Run(Mixed, FALSE, [crashes |-> 1])
RaisedByTwoKeepersInDatabase == Run(Mixed, TRUE, [crashes |-> 1])
RaisedTwice == Run(<<Old("a"), New("b"), New("c"), New("a"), New("keeper")>>, FALSE, [crashes |-> 1])
StampMadeAgain == Run(<<Old("a"), Old("b"), New("c")>>, FALSE, [deletions |-> 1])

(* It stays. A retry may have another version than the try before it.      *)
Both == <<Old("a"), Beside("b"), Beside("a"), Old("b"), Beside("keeper")>>
SideBySide == Run(Both, FALSE, [crashes |-> 2])
SideBySideInDatabase == Run(Both, TRUE, [crashes |-> 2])
=============================================================================
