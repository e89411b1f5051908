//! The tour of the demo: numbered commands, each with a line about what it shows.

use crate::simulated_box::SimulatedBox;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A command of the tour.
pub(crate) struct TourStop {
    arguments: String,
    shows: &'static str,
}

/// The arguments of `holders` for the most interesting GPU.
pub(crate) fn holders(simulated_box: Option<&SimulatedBox>) -> &'static [&'static str] {
    match simulated_box {
        Some(_) => &["holders", "--gpu", "7"],
        None => &["holders"],
    }
}

/// The commands of the tour. Those about one process need the simulated box.
pub(crate) fn stops(simulated_box: Option<&SimulatedBox>) -> Vec<TourStop> {
    let stop = |arguments: &str, shows| TourStop {
        arguments: arguments.to_owned(),
        shows,
    };
    let mut stops = vec![
        stop("list", "every GPU, its top process"),
        stop("list --details --watch", "every process: q quits"),
        stop(
            &holders(simulated_box).join(" "),
            "memory without a process",
        ),
    ];
    if let Some(simulated) = simulated_box {
        stops.push(stop(
            &format!("explain {}", simulated.notebook),
            "all about one process",
        ));
        stops.push(stop(
            &format!("kill {} --scope job --dry-run", simulated.worker),
            "the plan to end a job",
        ));
    } else {
        stops.push(stop("guard status", "rules, and who breaks them"));
        stops.push(stop("rogue scan", "suspicious processes"));
    }
    stops.push(stop("audit --summary --hours 1", "usage, busy and idle"));
    stops.push(stop("status", "what works, and your rights"));
    stops
}

/// Prints the tour, each command on a line of at most 80 columns.
pub(crate) fn print(stops: &[TourStop]) {
    let lengths = stops.iter().map(|stop| stop.arguments.len());
    let width = lengths.max().unwrap_or(0);
    for (number, TourStop { arguments, shows }) in (1..).zip(stops) {
        println!("  {number}  gpukillctl {arguments:width$}  {shows}");
    }
}

/// Writes a command for each number, so that it works in any shell.
pub(crate) fn write_commands(directory: &Path, stops: &[TourStop]) -> io::Result<()> {
    fs::create_dir(directory)?;
    for (number, TourStop { arguments, shows }) in (1..).zip(stops) {
        let file = directory.join(number.to_string());
        let script = format!(
            "#!/bin/sh\necho '# {shows}'\necho '$ gpukillctl {arguments}'\nexec gpukillctl {arguments}\n"
        );
        fs::write(&file, script)?;
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    }
    Ok(())
}
