//! The client over the real daemon, as people and programs use it.

mod five_gpu_box;

mod selection;

mod exit_codes;

mod screens;

mod settings;

mod completions;

mod watch;
