-- The schema of audit.db, the record of actions: rows are added and never deleted.
-- Times are milliseconds since 1970. Long columns come last, so that SQLite can read the
-- other columns without them.

-- Events of the daemon and the devices.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL, -- see event_row.rs
    detail TEXT,
    uid INTEGER, -- the user who requested it
    device TEXT, -- UUID or PCI address of the affected device
    number INTEGER, -- XID code; end of a quiesce
    times INTEGER NOT NULL DEFAULT 1, -- number of equal events at once
    content TEXT -- JSON, for starts, settings and rules
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

-- Actions: a row is written before the action starts, and settled once.
CREATE TABLE action (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when it was requested
    run TEXT NOT NULL, -- run of the daemon: boot id and start time
    kind TEXT NOT NULL, -- kill, reset and so on
    uid INTEGER, -- the user who requested it; NULL for counted refusals of several users
    times INTEGER NOT NULL DEFAULT 1, -- equal refusals, or counted ones, between at and finished_at
    finished_at INTEGER, -- NULL while the action is open
    result TEXT, -- done, partly, failed, refused, interrupted, unrecorded
    why TEXT, -- for the last three results
    request TEXT NOT NULL,
    plan TEXT, -- JSON
    outcome TEXT -- JSON
) STRICT;
CREATE INDEX action_at ON action (at);
CREATE INDEX action_uid ON action (uid) WHERE uid IS NOT NULL;
CREATE INDEX action_under_way ON action (id) WHERE finished_at IS NULL;
CREATE TRIGGER action_request_is_fixed
BEFORE UPDATE OF id, at, run, kind, uid, times, request, plan ON action
BEGIN
    SELECT RAISE(ABORT, 'the request of an action does not change');
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

-- Decisions of the guard, one row for each step of a violation.
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- end of the sample that led to the decision
    step TEXT NOT NULL, -- violated, warned, ended, spared, over
    rule TEXT NOT NULL,
    owner TEXT, -- name of the person it is about, if any
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
    uid INTEGER, -- the user the process runs as
    owner TEXT, -- the name of the owner
    threat TEXT NOT NULL, -- the worst threat
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
