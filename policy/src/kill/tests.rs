//! Tests of plans: whole plans against golden files, and properties of every plan.

mod fixture;

mod plan_text;

mod plans;

mod shared_container;

mod left_running;

mod resolve;

mod refusals;

mod protection;

mod name_trust;

mod admin_protection;

mod recheck;

mod uid_changes;

mod scope;

mod late_members;

mod consent;

mod reclaimed;

mod respawned;

mod device_use;

mod laws;
