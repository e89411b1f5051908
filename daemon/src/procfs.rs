//! The kernel's small files, read whole and bounded: what every part that looks
//! below `/proc` and `/sys` needs.

pub(crate) mod file;

pub(crate) mod living;

pub(crate) mod stat;

pub(crate) mod status;
