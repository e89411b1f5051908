//! The daemon as a service: settings, starts and stops, systemd, and the rights of its
//! callers.

mod rights;
mod settings;
mod shutdown;
mod systemd;
