-- What rules saw of a process from a sample on, each time that it changed: what they
-- would have said then is told by nothing else.
CREATE TABLE about (
    process INTEGER NOT NULL,
    sample INTEGER NOT NULL, -- the first
    about BLOB NOT NULL, -- a version and postcard: see abouts.rs
    PRIMARY KEY (process, sample)
) STRICT, WITHOUT ROWID;
-- What programs may have of a device, in bytes; whether it is the host's memory.
ALTER TABLE device ADD COLUMN memory INTEGER;
ALTER TABLE device ADD COLUMN is_unified INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER process_takes_its_about AFTER DELETE ON process
BEGIN
    DELETE FROM about WHERE process = OLD.id;
END;
