//! What the driver says, what it does not say, and how it breaks: through the
//! real daemon, over the stand-in NVML.

mod getters;

mod library;

mod lost;

mod processes;

mod sensor;
