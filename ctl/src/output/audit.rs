//! The answers of `audit`.

pub(crate) mod actions;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod prune;
pub(crate) mod series;
pub(crate) mod summary;
pub(crate) mod timeline;
pub(crate) mod usage_report;
