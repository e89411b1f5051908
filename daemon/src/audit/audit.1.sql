-- What the daemon did, append-only.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- milliseconds since 1970
    kind TEXT NOT NULL, -- started, stopped
    detail TEXT
) STRICT;
