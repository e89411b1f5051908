//! What the system knows of processes and people. Reads, never judges.

pub(crate) mod commands;

pub(crate) mod container;

pub(crate) mod process;

pub(crate) mod users;
