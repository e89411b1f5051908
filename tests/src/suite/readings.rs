//! What the driver says, what it does not say, and how it breaks: through the
//! real daemon, over the stand-in NVML.

mod divided;

mod events;

mod getters;

mod library;

mod lists;

mod lost;

mod memory;

mod names;

mod processes;

mod quiesce;

mod sensor;

mod vitals;
