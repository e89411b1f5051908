-- What the guard decided, one row for each step of a violation.
CREATE TABLE verdict (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- when the sample ended that it was decided by, in milliseconds since 1970
    step TEXT NOT NULL, -- violated, warned, ended, spared, over
    rule TEXT NOT NULL,
    owner TEXT, -- whose it is about, where it is about somebody
    uid INTEGER,
    record TEXT NOT NULL -- JSON
) STRICT;
CREATE INDEX verdict_at ON verdict (at);
CREATE INDEX verdict_uid ON verdict (uid, at) WHERE uid IS NOT NULL;
CREATE INDEX event_of_rules ON event (id) WHERE kind = 'rules';
CREATE TRIGGER verdict_stays BEFORE UPDATE ON verdict
BEGIN
    SELECT RAISE(ABORT, 'what was decided does not change');
END;
CREATE TRIGGER verdict_is_kept BEFORE DELETE ON verdict
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;
