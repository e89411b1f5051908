//! The client over the real daemon, as people and programs use it.

mod completions;
mod exit_codes;
mod five_gpu_box;
mod screens;
mod selection;
mod settings;
mod watch;
