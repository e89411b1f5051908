//! Arguments of `reset`.

use super::{StatusFormat, text_parser};
use clap::{ArgGroup, Args};

/// `reset`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["gpu", "all"])))]
pub struct Reset {
    /// These GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *
    #[arg(long, value_name = "SEL", value_parser = text_parser())]
    pub gpu: Option<String>,
    /// Every GPU, one after the other
    #[arg(long, overrides_with = "all")]
    pub all: bool,
    /// End the processes that hold the GPU first, with SIGKILL where nothing else helps
    #[arg(long, overrides_with = "force")]
    pub force: bool,
    /// Show what would be done and what prevents it, and do nothing
    #[arg(long, overrides_with = "dry_run")]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long, overrides_with = "yes")]
    pub yes: bool,
    /// The form of the output [default: table]
    #[arg(short, long, value_name = "FORMAT", overrides_with = "output")]
    pub output: Option<StatusFormat>,
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command, Deferred};
    use clap::Parser as _;

    fn parse(line: &str) -> Option<(Option<String>, bool, bool)> {
        let line = format!("gpukillctl reset {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).ok()?;
        match cli.command {
            Command::Reset(Deferred(reset)) => Some((reset.gpu, reset.all, reset.force)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn either_gpus_or_all_are_named() {
        assert_eq!(parse("--gpu 3"), Some((Some("3".into()), false, false)));
        assert_eq!(parse("--all --force"), Some((None, true, true)));
        for line in [
            "",
            "3",
            "--gpu 3 --all",
            "--gpu=",
            "--gpu 1 --gpu 2",
            "--all -o csv",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
