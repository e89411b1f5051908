//! Tests of plans: whole ones against golden files, and what holds for all.

mod scene;

mod told;

mod plans;

mod shared;

mod spared;

mod meant;

mod refused;

mod protected;

mod trusted;

mod admin;

mod again;

mod numbers;

mod born;

mod newcomers;

mod consent;

mod returned;

mod respawned;

mod usage;

mod laws;
