//! The screen of `list`: the tables of devices and processes, and the terminal while it is shown
//! continuously.

pub(crate) mod columns;
pub(crate) mod gpus;
pub(crate) mod keyboard;
pub(crate) mod processes;
pub(crate) mod screen;
pub(crate) mod view;
