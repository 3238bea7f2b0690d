// The JSON of the server's answers, which airflow_hivelock/ui makes. tests/airflow/test_page_answers.py compares both.
// Times are in milliseconds since 1970, by the lock store's clock. `o` is an index in the answer's list of owners.

declare namespace Answer {
  type Mode = "S" | "X";

  // Object and mode; 1 marks a lock on a parent that is taken only for the objects below it.
  type Lock = [object: string, mode: Mode, parent?: 1];

  interface Connections {
    connections: string[];
    user: string;
    airflow: string;
  }

  interface Current {
    installation: string;
    owners: Owner[];
    leases: Lease[];
    hive: HiveLock[] | null; // null: unknown so far
    waiters: Waiter[];
    expires: boolean;
    left_out: number;
  }

  interface History {
    installation: string;
    owners: Owner[];
    tenures: Tenure[];
    left_out: number;
  }

  interface Audit {
    installation: string;
    owners: Owner[];
    entries: Entry[];
    left_out: number;
  }

  interface Member {
    o: number;
    weight: number;
  }

  interface Group {
    name: string; // empty: a DAG that the user may not see
    leases: number | null; // null: each request has its own limit
    weight: number | null;
    comment: string;
    taken: number;
    holding: Member[];
    waiting: Member[];
  }

  interface Groups {
    installation: string;
    owners: Owner[];
    groups: Group[];
    left_out: number;
  }

  type Owner = Task | Person | Program | Hidden;

  interface Task {
    text: string;
    dag: string;
    run: string;
    task: string;
    map?: number;
    installation?: string; // of another Airflow
    person?: undefined;
    hidden?: undefined;
  }

  interface Person {
    text: string;
    person: string;
    until?: number; // the end of a reservation
    dag?: undefined;
    hidden?: undefined;
  }

  interface Program {
    text: string;
    dag?: undefined;
    person?: undefined;
    hidden?: undefined;
  }

  // A task of a DAG that the user may not see.
  interface Hidden {
    hidden: true;
    text?: undefined;
    dag?: undefined;
    person?: undefined;
  }

  type Activity = "works" | "idle" | "ends" | "needs" | "hand" | "untold";

  // Without `id`, `why`, `jobs` and `query`, if its owner is hidden.
  interface Lease {
    id?: string;
    o: number;
    token: number;
    attempt: number;
    since: number;
    lease_s: number;
    jobs?: Job[];
    locks: Lock[];
    expires?: number;
    query?: string;
    lost?: string[];
    doing: Activity;
    state: string;
    why?: string;
    at?: number;
  }

  type WorkCode = "runs" | "ended" | "away" | "untold" | "silent";

  type Job = [name: string, what: string, code?: WorkCode, text?: string, next?: string];

  interface HiveLock {
    object: string;
    mode: Mode;
    owner: string;
    since: number;
    explicit: boolean | null;
    query: string;
    id?: string; // for its force release
    heartbeat?: number;
  }

  type WaitsFor = "lock" | "lease" | "slot" | "free";

  // `group` and `out` are there if it waits for a lease of its group; a hidden owner's has no `group`.
  interface Waiter {
    o: number;
    position: number;
    priority: number;
    for: WaitsFor;
    since: number;
    until?: number;
    expected?: [least: number, most: number];
    locks: Lock[];
    blockers: Arrow[];
    direct: number;
    ahead: number;
    holders: Arrow[];
    group?: string;
    out?: number;
  }

  interface Arrow {
    o: number;
    object: string;
    mode: Mode;
    waiting: boolean;
    counted?: true;
  }

  interface Tenure {
    id?: string;
    o: number;
    locks: Lock[];
    asked: number;
    granted: number;
    ended: number | null;
  }

  interface Entry {
    at: number;
    id?: string;
    o: number;
    user: string;
    reason?: string;
    locks: Lock[];
  }

  interface LeaseDetails {
    id: string;
    owner: Owner;
    token: number;
    locks: number;
    works: Work[];
    keeper: Keeper;
  }

  interface Work {
    name: string;
    what: string;
    host: string;
    code?: WorkCode;
    how?: string;
    next?: string;
  }

  interface Keeper {
    why: string;
    next: string;
    at?: number;
    report?: string;
  }

  interface OnHost {
    works: HostWork[];
  }

  interface HostWork {
    owner: Owner;
    name: string;
  }

  interface Released {
    freed: boolean;
  }

  interface HiveReleased {
    freed: number;
  }

  interface Withdrawn {
    withdrawn: boolean;
  }

  interface PriorityChanged {
    changed: boolean;
  }

  interface Reserved {
    lease: string;
  }

  interface HostGone {
    ended: number;
  }
}
