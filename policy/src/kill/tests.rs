//! Tests of plans: whole plans against golden files, and properties of every plan.

mod admin_protection;
mod consent;
mod device_use;
mod fixture;
mod late_members;
mod laws;
mod left_running;
mod name_trust;
mod plan_text;
mod plans;
mod protection;
mod recheck;
mod reclaimed;
mod refusals;
mod resolve;
mod respawned;
mod scope;
mod shared_container;
mod uid_changes;
