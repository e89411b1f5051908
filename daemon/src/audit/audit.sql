-- The schema of audit.db, the record of actions: rows are added and never deleted.
-- Moments are milliseconds since 1970. Long columns come last, so that SQLite reads the
-- others without them.

-- What happened to the daemon and the devices.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL, -- see event_row.rs
    detail TEXT,
    uid INTEGER, -- the user who asked for it
    device TEXT, -- the UUID or PCI address of the device it happened to
    number INTEGER, -- of an XID; of a quiesce, its end
    times INTEGER NOT NULL DEFAULT 1, -- how often at once
    content TEXT -- of a start, and of settings and rules: JSON
) STRICT;
CREATE INDEX event_at ON event (at);
CREATE INDEX event_uid ON event (uid) WHERE uid IS NOT NULL;
CREATE INDEX event_of_start ON event (id) WHERE kind = 'started';
CREATE INDEX event_of_rules ON event (id) WHERE kind = 'rules';
CREATE TRIGGER event_stays BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'what happened does not change');
END;
CREATE TRIGGER event_is_kept BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;

-- What people had the daemon do: a row is written before it is done, and settled once.
CREATE TABLE action (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when it was asked for
    run TEXT NOT NULL, -- of the daemon: id of the boot, and its start
    kind TEXT NOT NULL, -- kill, reset and so on
    uid INTEGER, -- the user who asked; NULL of refusals to many that are only counted
    times INTEGER NOT NULL DEFAULT 1, -- equal refusals, or counted ones, between at and finished_at
    finished_at INTEGER, -- NULL while it is under way
    word TEXT, -- done, partly, failed, refused, interrupted, unrecorded
    why TEXT, -- of the last three
    asked TEXT NOT NULL,
    plan TEXT, -- JSON
    outcome TEXT -- JSON
) STRICT;
CREATE INDEX action_at ON action (at);
CREATE INDEX action_uid ON action (uid) WHERE uid IS NOT NULL;
CREATE INDEX action_under_way ON action (id) WHERE finished_at IS NULL;
CREATE TRIGGER action_stays_as_asked
BEFORE UPDATE OF id, at, run, kind, uid, times, asked, plan ON action
BEGIN
    SELECT RAISE(ABORT, 'what was asked for does not change');
END;
CREATE TRIGGER action_is_settled_once BEFORE UPDATE ON action
WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an action is settled once');
END;
CREATE TRIGGER action_is_kept BEFORE DELETE ON action
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;

-- What the guard decided, one row for each step of a violation.
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- the end of the sample that it was decided by
    step TEXT NOT NULL, -- violated, warned, ended, spared, over
    rule TEXT NOT NULL,
    owner TEXT, -- the name of the owner it is about, if any
    uid INTEGER,
    record TEXT NOT NULL -- JSON
) STRICT;
CREATE INDEX verdict_at ON verdict (at);
CREATE INDEX verdict_uid ON verdict (uid, at) WHERE uid IS NOT NULL;
CREATE TRIGGER verdict_stays BEFORE UPDATE ON verdict
BEGIN
    SELECT RAISE(ABORT, 'what was decided does not change');
END;
CREATE TRIGGER verdict_is_kept BEFORE DELETE ON verdict
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;

-- Rogue verdicts, one row for each report.
CREATE TABLE finding (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    uid INTEGER, -- the user it runs as
    owner TEXT, -- the name of the owner
    threat TEXT NOT NULL, -- the worst
    risk TEXT NOT NULL,
    record TEXT NOT NULL -- JSON
) STRICT;
CREATE INDEX finding_at ON finding (at);
CREATE TRIGGER finding_stays BEFORE UPDATE ON finding
BEGIN
    SELECT RAISE(ABORT, 'what was found does not change');
END;
CREATE TRIGGER finding_is_kept BEFORE DELETE ON finding
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;
