-- One row for each sample, with everything in it, in place of one for each
-- device and process. What was sampled before is of another kind and goes.
DROP TABLE sample;
DROP TABLE device_sample;
DROP TABLE process_sample;
DROP TABLE process;

-- A sample is what some polls saw, added up. Its id grows with each one,
-- whatever the clock does, and is not given again when all were deleted.
CREATE TABLE sample (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when it began, in milliseconds since 1970
    usage BLOB NOT NULL -- see packed.rs
) STRICT;
CREATE INDEX sample_at ON sample (at);

-- The samples of a minute, added up. Its id is that of the last of them.
CREATE TABLE minute (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    usage BLOB NOT NULL
) STRICT;
CREATE INDEX minute_at ON minute (at);

-- The minutes of an hour, added up. Its id is that of the last of them.
CREATE TABLE hour (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    usage BLOB NOT NULL
) STRICT;
CREATE INDEX hour_at ON hour (at);

-- How far samples are in minutes, and minutes in hours: written with them.
CREATE TABLE rolled (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sample INTEGER NOT NULL, -- the last that is in a minute
    minute INTEGER NOT NULL -- the last that is in an hour
) STRICT;
INSERT INTO rolled VALUES (1, 0, 0);

-- One row for each process, beyond doubt: pids are used again.
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, -- -1: there was no such process
    started_at INTEGER, -- milliseconds since 1970
    uid INTEGER,
    user TEXT,
    login_uid INTEGER,
    owner TEXT, -- what to call whose it is
    owner_uid INTEGER, -- the user, where that is one of this box
    owner_kind INTEGER, -- 0 user, 1 namespace, 2 label, 3 container
    groups TEXT, -- names of the owner's groups, JSON
    namespace_owner INTEGER, -- who made its user namespace
    name TEXT,
    executable TEXT,
    command TEXT,
    container TEXT, -- its id
    container_name TEXT,
    image TEXT,
    unit TEXT,
    job TEXT, -- as list shows it
    place TEXT, -- all that is known of where it ran, JSON
    UNIQUE (boot, pid, start_ticks)
) STRICT;

-- One row for each process and device. Times are sums up to the last minute.
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL,
    device INTEGER NOT NULL,
    instance TEXT NOT NULL, -- the part of the device: gpu/compute, or nothing
    first_at INTEGER NOT NULL, -- milliseconds since 1970
    last_at INTEGER NOT NULL,
    first_sample INTEGER NOT NULL,
    last_sample INTEGER NOT NULL,
    held_ms INTEGER NOT NULL DEFAULT 0,
    busy_ms INTEGER NOT NULL DEFAULT 0, -- shares of its owner's time
    idle_ms INTEGER NOT NULL DEFAULT 0,
    unknown_ms INTEGER NOT NULL DEFAULT 0,
    memory_most INTEGER, -- bytes
    memory_mib_s INTEGER NOT NULL DEFAULT 0, -- MiB × seconds
    ended_at INTEGER, -- NULL while it goes on, as far as is known
    ending TEXT, -- ended, left (it lives, without the device), killed, unseen
    action INTEGER, -- of the kill, in the other file
    UNIQUE (process, device, instance)
) STRICT;
CREATE INDEX run_ended ON run (ended_at);
