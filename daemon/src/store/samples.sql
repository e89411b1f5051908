-- The schema of samples.db. Times are milliseconds since 1970.

-- A sample is the sum of some polls. Its id grows with each sample, whatever the clock
-- does, and is never used again, not even after all samples were deleted.
CREATE TABLE sample (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when it began
    usage BLOB NOT NULL -- see blob.rs
) STRICT;
CREATE INDEX sample_at ON sample (at);

-- The sum of the samples of a minute. Its id is that of the last of them.
CREATE TABLE minute (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    usage BLOB NOT NULL
) STRICT;
CREATE INDEX minute_at ON minute (at);

-- The sum of the minutes of an hour. Its id is that of the last of them.
CREATE TABLE hour (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    usage BLOB NOT NULL
) STRICT;
CREATE INDEX hour_at ON hour (at);

-- How far samples are rolled up into minutes, and minutes into hours: written in the
-- same transaction as the rollups.
CREATE TABLE rolled (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sample INTEGER NOT NULL, -- the last one that is in a minute
    minute INTEGER NOT NULL -- the last one that is in an hour
) STRICT;
INSERT INTO rolled VALUES (1, 0, 0);

CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE, -- or the PCI address
    gpu_index INTEGER NOT NULL, -- at the last observation
    name TEXT,
    pci TEXT,
    memory INTEGER, -- what programs can allocate, in bytes
    is_unified INTEGER NOT NULL DEFAULT 0 -- whether its memory is the host's
) STRICT;

-- One row for each process. Boot and start time are part of the key because the kernel
-- reuses pids.
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, -- -1: no such process; below -1: it had ended
    started_at INTEGER,
    uid INTEGER,
    user TEXT,
    login_uid INTEGER,
    owner TEXT, -- the name of the owner
    owner_uid INTEGER, -- if the owner is a user of this host
    owner_kind INTEGER, -- 0 user, 1 namespace, 2 label, 3 container
    groups TEXT, -- names of the owner's groups, JSON
    namespace_owner INTEGER, -- the user who made its user namespace
    name TEXT,
    executable TEXT,
    command TEXT,
    container TEXT, -- its id
    container_name TEXT,
    image TEXT,
    unit TEXT,
    job TEXT, -- as list shows it
    location TEXT, -- JSON
    UNIQUE (boot, pid, start_ticks)
) STRICT;
-- Queries for some processes do not read all of them.
CREATE INDEX process_uid ON process (uid);
CREATE INDEX process_user ON process (user);
CREATE INDEX process_owner_uid ON process (owner_uid);
CREATE INDEX process_owner ON process (owner);
CREATE INDEX process_name ON process (name);
CREATE INDEX process_job ON process (job) WHERE job IS NOT NULL;
CREATE INDEX process_container_name ON process (container_name)
    WHERE container_name IS NOT NULL;
-- The id without the name of the runtime.
CREATE INDEX process_container ON process (substr(container, instr(container, '/') + 1))
    WHERE container IS NOT NULL;

-- The facts that rules see of a process from a sample on, written each time that they change.
-- A replay of rules on the history needs them.
CREATE TABLE rule_facts (
    process INTEGER NOT NULL,
    sample INTEGER NOT NULL, -- the first
    facts BLOB NOT NULL, -- see rule_facts.rs
    PRIMARY KEY (process, sample)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER process_deletes_rule_facts AFTER DELETE ON process
BEGIN
    DELETE FROM rule_facts WHERE process = OLD.id;
END;

-- One row for each process and device. Times are sums up to the last minute. Its id is never used
-- again, because archives join the parts of a run by it.
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    process INTEGER NOT NULL,
    device INTEGER NOT NULL,
    instance TEXT NOT NULL, -- the MIG instance: gpu/compute, or nothing
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    first_sample INTEGER NOT NULL,
    last_sample INTEGER NOT NULL,
    held_ms INTEGER NOT NULL DEFAULT 0,
    busy_ms INTEGER NOT NULL DEFAULT 0, -- shares of its owner's time
    idle_ms INTEGER NOT NULL DEFAULT 0,
    unknown_ms INTEGER NOT NULL DEFAULT 0,
    process_busy_ms INTEGER NOT NULL DEFAULT 0, -- of the process itself, of held_ms
    process_idle_ms INTEGER NOT NULL DEFAULT 0,
    utilization_total INTEGER NOT NULL DEFAULT 0, -- percent × milliseconds
    utilization_known_ms INTEGER NOT NULL DEFAULT 0,
    memory_max INTEGER, -- bytes
    memory_mib_s INTEGER NOT NULL DEFAULT 0, -- MiB × seconds
    ended_at INTEGER, -- NULL while it continues, as far as known
    ending TEXT, -- ended, released (alive, without the device), killed, unobserved
    action INTEGER, -- the kill, in audit.db
    active_at INTEGER, -- the end of the last sample in which it used the device
    UNIQUE (process, device, instance)
) STRICT;
CREATE INDEX run_first ON run (first_at);
CREATE INDEX run_ended ON run (ended_at);
