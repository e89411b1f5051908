-- Who was found to be up to no good, one row each time that it was told.
CREATE TABLE finding (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- milliseconds since 1970
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    uid INTEGER, -- as whom it runs
    owner TEXT, -- what to call whose it is
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
