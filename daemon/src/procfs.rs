//! Reads small kernel files, whole and bounded, for every module that reads below `/proc` and
//! `/sys`.

pub(crate) mod alive;
pub(crate) mod file;
pub(crate) mod stat;
pub(crate) mod status;
