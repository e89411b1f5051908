//! The calls for which the daemon looks at all processes first: who has devices
//! open, and what is known of one process.

use super::super::explanation::{Asker, Judged, explain, nothing_of};
use super::super::holder_pages::Answer;
use super::super::snapshot_pages;
use super::Session;
use crate::guard::civil_of;
use crate::look::{LOOK_TIMEOUT, Since, looked};
use crate::state::Published;
use gpukill_policy::access::{Operation, Person, Ruling, check};
use gpukill_proto::holders::{Explanation, HoldersPage};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::SnapshotPage;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::text::visible;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl Session {
    /// More processes of the snapshot that this connection asked for last.
    pub(super) fn rest_of_snapshot(&self, tick: u64, start: u32) -> Result<SnapshotPage, Refusal> {
        let kept = self
            .asked_last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let snapshot = kept
            .filter(|snapshot| snapshot.tick == tick)
            .ok_or(Refusal::Expired)?;
        let roles = self.shared.roles();
        Ok(snapshot_pages::page(
            &snapshot,
            start as usize,
            &self.caller,
            &roles,
        ))
    }

    /// One page of the holders of this device, or of all.
    pub(super) async fn holders_page(
        &self,
        device: Option<&DeviceId>,
        start: u32,
    ) -> Result<HoldersPage, Refusal> {
        self.may_look()?;
        let answer = if start == 0 {
            Arc::new(self.look_for_holders(device).await?)
        } else {
            let kept = self.holders_asked_last.lock();
            let kept = kept.unwrap_or_else(PoisonError::into_inner).clone();
            kept.ok_or(Refusal::Expired)?
        };
        let page = answer.page(start as usize, &self.caller, &self.shared.roles());
        // Kept only while there is more to ask for.
        *self
            .holders_asked_last
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = page.next.map(|_| answer);
        Ok(page)
    }

    /// All that is known of this process.
    pub(super) async fn explanation(&self, pid: u32) -> Result<Explanation, Refusal> {
        self.may_look()?;
        let asked = Instant::now();
        let protected = self.shared.enforcer.protection(&self.caller, pid).await;
        let protected = protected.as_deref();
        let mut published = self.looked(Since::Lately).await?;
        let (mut explained, mut people) = self.explained(&published, pid, protected);
        // It may have come to a GPU since a look that is news to others. One that took too
        // long was none of those, and the next would take as long.
        if explained.is_none() && asked.elapsed() < LOOK_TIMEOUT {
            published = self.looked(Since::After(asked)).await?;
            (explained, people) = self.explained(&published, pid, protected);
        }
        if let Some(explained) = explained {
            // They were asked for just now, perhaps for the first time.
            self.learn_names(&people).await;
            return Ok(self
                .explained(&published, pid, protected)
                .0
                .unwrap_or(explained));
        }
        let procfs = {
            let config = self.shared.authority.config.borrow();
            config.backends.procfs_root.clone()
        };
        let reason = tokio::task::spawn_blocking(move || nothing_of(&published, &procfs, pid));
        Err(reason.await.unwrap_or(Refusal::Internal))
    }

    /// What is known of it now, and the users who are named in it.
    fn explained(
        &self,
        published: &Published,
        pid: u32,
        protected: Option<&str>,
    ) -> (Option<Explanation>, Vec<u32>) {
        let roles = self.shared.roles();
        let now = self.shared.clock.now();
        let (guard, users) = (&self.shared.guard, &self.shared.authority.users);
        let (in_force, standing) = (guard.in_force(), guard.standing());
        let asker = Asker {
            caller: &self.caller,
            roles: &roles,
            will_not_act: self.shared.will_not_act.as_deref(),
            protected,
            judged: Judged {
                book: &in_force.rules.book,
                is_stopped: standing.tripped_at.is_some(),
                open: &standing.open,
                simulated: &standing.simulated,
                civil: civil_of(now),
                groups: &|uid| Some(users.groups_of(uid)?.to_vec()),
                accounts: &published.accounts,
            },
        };
        let people = RefCell::new(Vec::new());
        let explained = explain(published, pid, now, &asker, |person| {
            if let Person::User(uid) = person {
                people.borrow_mut().push(uid);
            }
            self.called(person)
        });
        let explained = explained.map(|explained| {
            let uses = published.snapshot.processes.iter();
            let mut its = uses.filter(|process| process.pid == pid);
            let rogue = its.next().map(|process| self.looked_like(process));
            Explanation {
                rogue: rogue.unwrap_or(Reading::Unsupported),
                ..explained
            }
        });
        (explained, people.into_inner())
    }

    /// What is known after a look at all processes.
    async fn looked(&self, since: Since) -> Result<Published, Refusal> {
        looked(&self.shared.look, &self.shared.state, since).await
    }

    fn may_look(&self) -> Result<(), Refusal> {
        match check(&self.caller, Operation::Look, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: "look".to_owned(),
                ask: "root".to_owned(),
            }),
        }
    }

    /// Who has this device open, or all devices, after a look at all processes.
    async fn look_for_holders(&self, device: Option<&DeviceId>) -> Result<Answer, Refusal> {
        let published = self.looked(Since::Lately).await?;
        let is_meant = |id: &DeviceId| device.is_none_or(|device| device == id);
        let held = published.holders.iter().filter(|held| is_meant(&held.id));
        let mut devices = published.snapshot.devices.iter();
        if let Some(device) = device
            && held.clone().next().is_none()
            && !devices.any(|known| known.id == *device)
        {
            let shown = visible(device.0.as_bytes(), 80);
            return Err(Refusal::NoMatch(format!("no GPU is called {shown:?}")));
        }
        Ok(Answer::new(held, self.shared.clock.now()))
    }

    /// What people call somebody who may do something.
    fn called(&self, person: Person) -> String {
        let access = &self.shared.authority.config.borrow().access;
        match person {
            Person::User(uid) => match self.shared.authority.users.name(uid).last_known() {
                Some(name) => name.clone(),
                None => format!("uid {uid}"),
            },
            Person::Group(_) => format!("group {}", access.operator_group),
        }
    }
}
