//! The client as people and programs meet it: over the real daemon.

mod box_of_five;

mod choosing;

mod endings;

mod screens;

mod settings;

mod shells;

mod watching;
