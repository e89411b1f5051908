-- A sample is one moment in which all devices and processes were read. Its id
-- grows with each sample, whatever the clock does, and is not given again when
-- all samples were deleted.
CREATE TABLE sample (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL -- milliseconds since 1970
) STRICT;
CREATE INDEX sample_at ON sample (at);

CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE, -- or the PCI address
    gpu_index INTEGER NOT NULL, -- when last seen
    name TEXT,
    pci TEXT
) STRICT;

-- One row for each process, beyond doubt: pids are used again.
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, -- -1: there was no such process
    uid INTEGER,
    user TEXT,
    owner TEXT, -- what to call whose it is
    owner_uid INTEGER, -- the user, where that is one of this box
    owner_kind INTEGER, -- 0 user, 1 namespace, 2 label, 3 container
    namespace_owner INTEGER, -- who made its user namespace
    name TEXT,
    executable TEXT,
    command TEXT,
    container TEXT,
    UNIQUE (boot, pid, start_ticks)
) STRICT;

-- The id is the sample's id times 2^20, plus a number within the sample. Values
-- below -1000 are no values: -1001 unsupported, -1002 failed, -1003 stale.
CREATE TABLE device_sample (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL,
    gpu_index INTEGER NOT NULL,
    memory INTEGER NOT NULL, -- bytes
    utilization INTEGER NOT NULL, -- percent
    temperature INTEGER NOT NULL, -- degrees Celsius
    power INTEGER NOT NULL -- milliwatts
) STRICT;

CREATE TABLE process_sample (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL,
    gpu_index INTEGER NOT NULL,
    process INTEGER NOT NULL,
    memory INTEGER NOT NULL, -- bytes
    utilization INTEGER NOT NULL -- percent
) STRICT;
