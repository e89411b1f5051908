//! Converts the arguments of `kill` into a request. Refuses here what makes no sense for any
//! processes.

use crate::args::{Kill, VendorChoice};
use crate::exit::{Error, Exit};
use crate::settings::Settings;
use gpukill_policy::select::compile_pattern;
use gpukill_proto::kill::{KillRequest, KillScope, KillSelector, KillSignal};
use std::collections::BTreeSet;

pub(super) fn request(wanted: &Kill, settings: &Settings) -> Result<KillRequest, Error> {
    let request = KillRequest {
        selector: selector(wanted),
        scope: KillScope::from(wanted.scope),
        signal: wanted.signal.map(KillSignal::from),
        force: wanted.force,
        signal_timeout_ms: settings.signal_timeout.as_secs().saturating_mul(1000),
        any_process: wanted.any_process,
        override_protected: wanted.override_protected,
        dry_run: wanted.dry_run,
    };
    check(&request).map(|()| request)
}

fn selector(wanted: &Kill) -> KillSelector {
    // A PID that is typed twice counts once.
    let mut pids = [&*wanted.pids, &*wanted.pid].concat();
    pids.sort_unstable();
    pids.dedup();
    KillSelector {
        pids,
        filter: wanted.filter.clone(),
        command: wanted.command.clone(),
        gpu: wanted.gpu.clone(),
        user: match wanted.mine {
            true => Some(rustix::process::getuid().as_raw().to_string()),
            false => wanted.user.clone(),
        },
        container: wanted.container.clone(),
        image: wanted.image.clone(),
        job: wanted.job.clone(),
        min_memory: wanted.min_memory,
        vendors: VendorChoice::vendors(&wanted.vendor).into_iter().collect(),
    }
}

fn check(request: &KillRequest) -> Result<(), Error> {
    let selector = &request.selector;
    // `--vendor` and `--min-memory` only narrow other conditions. Alone they would select every
    // user's processes.
    let named = KillSelector {
        min_memory: None,
        vendors: BTreeSet::new(),
        ..selector.clone()
    };
    if named.is_empty() && !selector.is_empty() {
        let (what, example) = match selector.min_memory {
            Some(_) => ("--min-memory", "--min-memory 10G"),
            None => ("--vendor", "--vendor amd"),
        };
        return Err(Error::NotDone {
            what: format!(
                "no process is selected: {what} only narrows what PIDs, --filter, --command, \
                 --gpu, --user, --mine, --container, --image or --job select"
            ),
            hint: Some(format!(
                "your own processes: gpukillctl kill --mine {example}; those on a GPU: \
                 gpukillctl kill --gpu 0 {example}"
            )),
            exit: Exit::BadUsage,
        });
    }
    if named.is_empty() {
        return Err(Error::NotDone {
            what: "no process is selected: type PIDs, or one of --filter, --command, --gpu, \
                   --user, --mine, --container, --image and --job"
                .into(),
            hint: Some("see who uses the GPUs: gpukillctl list --details".into()),
            exit: Exit::BadUsage,
        });
    }
    request.validate().map_err(Error::Usage)?;
    for expression in [&selector.filter, &selector.command].into_iter().flatten() {
        compile_pattern(expression).map_err(Error::Usage)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, Deferred};
    use clap::Parser as _;
    use gpukill_proto::model::Vendor;
    use gpukill_proto::units::Bytes;
    use std::time::Duration;

    fn asked(line: &str) -> Result<KillRequest, String> {
        let line = format!("gpukillctl kill {line}");
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("it is right");
        let settings = Settings::from(&cli);
        match cli.command {
            Command::Kill(Deferred(kill)) => request(&kill, &settings).map_err(|failure| {
                assert_eq!(failure.exit_code(), Exit::BadUsage);
                failure.to_string()
            }),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_condition_reaches_the_daemon() {
        let line = "9 7 9 --filter python.* --command train --gpu 0-3 --user bob --container web \
                    --image vllm* --job 1234 --min-memory 4G --vendor intel,amd --vendor AMD --scope job \
                    --timeout-secs 30 --force --signal int --dry-run";
        let expected = KillRequest {
            selector: KillSelector {
                pids: vec![7, 9],
                filter: Some("python.*".into()),
                command: Some("train".into()),
                gpu: Some("0-3".into()),
                user: Some("bob".into()),
                container: Some("web".into()),
                image: Some("vllm*".into()),
                job: Some("1234".into()),
                min_memory: Some(Bytes::mib(4096)),
                vendors: [Vendor::Amd, Vendor::Intel].into(),
            },
            scope: KillScope::Job,
            signal: Some(KillSignal::Interrupt),
            force: true,
            signal_timeout_ms: 30_000,
            any_process: false,
            override_protected: false,
            dry_run: true,
        };
        assert_eq!(asked(line), Ok(expected));
        let plain = |pids: &[u32]| KillRequest {
            selector: KillSelector {
                pids: pids.to_vec(),
                ..KillSelector::default()
            },
            signal_timeout_ms: 5_000,
            ..KillRequest::default()
        };
        assert_eq!(asked("7"), Ok(plain(&[7])));
        assert_eq!(asked("--pid 7"), Ok(plain(&[7])));
        for line in ["--pid 9,7,8", "--pid 8 --pid 9,7", "8 --pid 7,8 9"] {
            assert_eq!(asked(line), Ok(plain(&[7, 8, 9])), "{line}");
        }
        let any = KillRequest {
            any_process: true,
            ..plain(&[7])
        };
        assert_eq!(asked("7 7 --any-process"), Ok(any));
        let mut own = plain(&[]);
        own.selector.user = Some(rustix::process::getuid().as_raw().to_string());
        assert_eq!(asked("--mine"), Ok(own));
        let overriding = KillRequest {
            override_protected: true,
            ..plain(&[7])
        };
        assert_eq!(asked("7 --override-protected"), Ok(overriding));
    }

    #[test]
    fn signal_timeout_comes_from_the_settings() {
        let settings = Settings {
            signal_timeout: Duration::from_secs(20),
            timeout: Duration::from_secs(90),
            ..Settings::default()
        };
        let kill = match Cli::try_parse_from(["gpukillctl", "kill", "7"]) {
            Ok(Cli {
                command: Command::Kill(Deferred(kill)),
                ..
            }) => kill,
            other => panic!("{other:?}"),
        };
        let asked = request(&kill, &settings).expect("it is right");
        assert_eq!(asked.signal_timeout_ms, 20_000);
    }

    #[test]
    fn nonsense_is_refused_before_asking() {
        let nobody = "no process is selected: type PIDs, or one of --filter, --command, --gpu, \
                      --user, --mine, --container, --image and --job";
        let narrows = |what: &str| {
            format!(
                "no process is selected: {what} only narrows what PIDs, --filter, --command, \
                 --gpu, --user, --mine, --container, --image or --job select"
            )
        };
        let (by_memory, by_vendor) = (narrows("--min-memory"), narrows("--vendor"));
        let one_pid = "--any-process takes one PID, and no other condition";
        for (line, expected) in [
            ("", nobody),
            ("--force --yes --batch", nobody),
            ("--min-memory 4G", by_memory.as_str()),
            ("--vendor nvidia --min-memory 4G", by_memory.as_str()),
            ("--vendor nvidia", by_vendor.as_str()),
            ("--vendor all", nobody),
            (
                "7 --signal KILL",
                "--signal KILL needs --force: the process cannot clean up",
            ),
            ("7 8 --any-process", one_pid),
            ("7 --user bob --any-process", one_pid),
            ("--user bob --any-process", one_pid),
            (
                "--user bob --override-protected",
                "--override-protected takes PIDs, and no other condition",
            ),
            (
                "--filter python[",
                "\"python[\" is not a regular expression: found unclosed character class",
            ),
            (
                "--command python[",
                "\"python[\" is not a regular expression: found unclosed character class",
            ),
        ] {
            assert_eq!(asked(line), Err(expected.to_owned()), "{line}");
        }
        let pids = |most: u32| (1..=most).map(|pid| format!("{pid} ")).collect::<String>();
        assert!(asked(&pids(1024)).is_ok());
        assert_eq!(
            asked(&pids(1025)).err().as_deref(),
            Some("1025 processes are too many at once: at most 1024")
        );
        assert!(asked("7 --signal KILL --force").is_ok());
    }
}
