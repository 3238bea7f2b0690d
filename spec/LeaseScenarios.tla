----------------------------- MODULE LeaseScenarios -----------------------------
(***************************************************************************)
(* The cases of Leases.tla that are checked.                               *)
(***************************************************************************)
EXTENDS Leases

NoFaults == [crashes |-> 0, zombies |-> 0, cuts |-> 0, forces |-> 0]
Run(tries, faults) == [tries |-> tries, faults |-> faults @@ NoFaults]

Retry == Run(<<"a", "a", "b">>, [crashes |-> 1])
Zombie == Run(<<"a", "a", "b">>, [zombies |-> 1])
CutOff == Run(<<"a", "a", "b">>, [crashes |-> 1, cuts |-> 1])
ByHand == Run(<<"a", "b">>, [forces |-> 1])
ByHandAndRetry == Run(<<"a", "a", "b">>, [crashes |-> 1, forces |-> 1])
Everything == Run(<<"a", "a", "b">>, [crashes |-> 1, zombies |-> 1, cuts |-> 1, forces |-> 1])
ThreeTries == Run(<<"a", "a", "a", "b">>, [crashes |-> 2, zombies |-> 1, cuts |-> 1])
=============================================================================
