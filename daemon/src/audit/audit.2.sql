-- What people have the daemon do: a row before it is done, settled once. Long
-- columns come last, so that the others are read without them.
CREATE TABLE action (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when it was asked for, in milliseconds since 1970
    run TEXT NOT NULL, -- of the daemon: id of the boot, and start in milliseconds since 1970
    kind TEXT NOT NULL, -- kill, reset
    uid INTEGER, -- who asked; NULL of refusals to many that are only counted
    times INTEGER NOT NULL DEFAULT 1, -- refusals alike, or only counted, between at and finished_at
    finished_at INTEGER, -- NULL while it is under way
    word TEXT, -- done, partly, failed, refused, interrupted, unrecorded
    why TEXT, -- of the last three
    asked TEXT NOT NULL,
    plan TEXT, -- JSON
    outcome TEXT -- JSON
) STRICT;
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
