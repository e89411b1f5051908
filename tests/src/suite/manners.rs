//! How the daemon behaves towards its admin and the system: settings, starts
//! and stops, systemd, and the rights of those who ask.

mod endings;

mod roles;

mod settings;

mod systemd;
