//! What may hang is asked for by threads, as the poll does it, and waited for
//! only so long: command lines, and the names of containers and users.

use super::member::Member;
use crate::host::cgroup::Contained;
use crate::host::commands::{Commands, NOT_YET};
use crate::host::containers::Containers;
use crate::host::users::Users;
use gpukill_proto::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Instant;

/// The threads that ask.
pub(super) struct Asking {
    commands: Commands,
    containers: Containers,
}

/// So many command lines are asked for at once: far fewer than may wait.
const AT_ONCE: usize = 512;

impl Asking {
    pub(super) fn start(host_root: &Path, owner_label: &str) -> io::Result<Self> {
        Ok(Self {
            commands: Commands::start()?,
            containers: Containers::start(host_root.to_owned(), owner_label)?,
        })
    }

    /// Fills in what comes before the deadline, and forgets it all: the next look
    /// is to be a fresh one.
    pub(super) fn fill(
        &self,
        members: &mut BTreeMap<u32, Member>,
        root: &Path,
        users: &Users,
        deadline: Instant,
    ) {
        for member in members.values() {
            let candidate = &member.candidate;
            let maker = candidate.namespace_owner.known().copied().flatten();
            for uid in candidate.kin.uid.into_iter().chain(maker) {
                users.name(uid);
            }
        }
        self.containers_of(members, users, deadline);
        self.commands_of(members, root, deadline);
        self.commands.keep_only(|_| false);
        self.containers.keep_only(|_| false);
    }

    fn containers_of(&self, members: &mut BTreeMap<u32, Member>, users: &Users, deadline: Instant) {
        let contained = members.values();
        let contained = contained.filter_map(|member| member.contained.known()?.clone());
        let contained: BTreeSet<Contained> = contained.collect();
        let ask = || {
            contained
                .iter()
                .map(|contained| (contained, self.containers.of(contained, users)))
                .collect::<BTreeMap<_, _>>()
        };
        // First for the homes of those who have containers of their own, then
        // for what lies there.
        ask();
        users.settle(deadline);
        ask();
        self.containers.settle(deadline);
        let told = ask();
        for member in members.values_mut() {
            let container;
            (container, member.label) = match &member.contained {
                Reading::Value(Some(contained)) => match told.get(contained) {
                    Some((container, label)) => {
                        (Reading::Value(Some(container.clone())), label.clone())
                    }
                    None => (Reading::Failed(NOT_YET.into()), None),
                },
                Reading::Value(None) => (Reading::Value(None), None),
                unknown => (unknown.because(), None),
            };
            member.candidate.container = container;
        }
    }

    fn commands_of(&self, members: &mut BTreeMap<u32, Member>, root: &Path, deadline: Instant) {
        let mut left = members.values_mut();
        loop {
            let mut some: Vec<&mut Member> = left.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            if Instant::now() < deadline {
                for member in &some {
                    let key = member.candidate.kin.key;
                    self.commands.of(key, || member.cmdline(root));
                }
                self.commands.settle(deadline);
            }
            for member in &mut some {
                self.take_command(member, root);
            }
            self.commands.keep_only(|_| false);
        }
    }

    fn take_command(&self, member: &mut Member, root: &Path) {
        let key = member.candidate.kin.key;
        member.candidate.command = self.commands.of(key, || member.cmdline(root));
        if member.candidate.kin.needs_arguments() {
            let arguments = self.commands.arguments_of(key, || member.cmdline(root));
            member.lacks_arguments = arguments.failure() == Some(NOT_YET);
            member.candidate.kin.arguments = arguments.known().cloned();
        }
    }
}
