-- What the daemon did, append-only.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL, -- milliseconds since 1970
    kind TEXT NOT NULL, -- started, stopped, quiesced, resumed, xid, device
    detail TEXT,
    uid INTEGER, -- who asked for it
    device TEXT, -- the UUID or PCI address of the device it happened to
    number INTEGER, -- of an XID; of a quiesce its end, in milliseconds since 1970
    times INTEGER NOT NULL DEFAULT 1 -- as often at once
) STRICT;
