//! The calls that scan all processes first: the holders of devices, and the explanation of one
//! process.

use super::super::explanation::{ExplanationContext, GuardContext, explain, explain_absence};
use super::super::holder_pages::HoldersAnswer;
use super::Session;
use crate::fd_scan::full_scan::{SCAN_TIMEOUT, ScanFreshness, read_after_scan};
use crate::guard::local_time_of;
use crate::state::PublishedPoll;
use gpukill_policy::access::{Operation, Principal, Ruling, check};
use gpukill_proto::holders::{Explanation, HoldersPage};
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::text::sanitize;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl Session {
    /// Returns one page of the holders of this device, or of all devices.
    pub(crate) async fn holders_page(
        &self,
        device: Option<&DeviceId>,
        start: u32,
    ) -> Result<HoldersPage, Refusal> {
        self.may_inspect()?;
        let answer = if start == 0 {
            Arc::new(self.list_holders(device).await?)
        } else {
            let kept = self.pending_holders.lock();
            let kept = kept.unwrap_or_else(PoisonError::into_inner).clone();
            kept.ok_or(Refusal::Expired)?
        };
        let page = answer.page(start as usize, &self.caller, &self.shared.roles());
        // Kept only while there are more pages.
        *self
            .pending_holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = page.next.map(|_| answer);
        Ok(page)
    }

    /// Returns all that is known of this process.
    pub(crate) async fn explanation(&self, pid: u32) -> Result<Explanation, Refusal> {
        self.may_inspect()?;
        let asked = Instant::now();
        let protected = self.shared.enforcer.protection(&self.caller, pid).await;
        let protected = protected.as_deref();
        let mut published = self.published_after_scan(ScanFreshness::Recent).await?;
        let (mut explained, mut people) = self.explain_published(&published, pid, protected);
        // The process may have opened a GPU after a scan that others started. If that scan took too
        // long, the next one would take as long, and none is started.
        if explained.is_none() && asked.elapsed() < SCAN_TIMEOUT {
            published = self
                .published_after_scan(ScanFreshness::StartedAfter(asked))
                .await?;
            (explained, people) = self.explain_published(&published, pid, protected);
        }
        if let Some(explained) = explained {
            // The names were requested just now, perhaps for the first time.
            self.wait_for_names(&people).await;
            return Ok(self
                .explain_published(&published, pid, protected)
                .0
                .unwrap_or(explained));
        }
        let procfs = {
            let config = self.shared.authority.config.borrow();
            config.backends.procfs_root.clone()
        };
        let reason = tokio::task::spawn_blocking(move || explain_absence(&published, &procfs, pid));
        Err(reason.await.unwrap_or(Refusal::Internal))
    }

    /// Explains the process now, and lists the users that the explanation names.
    fn explain_published(
        &self,
        published: &PublishedPoll,
        pid: u32,
        protected: Option<&str>,
    ) -> (Option<Explanation>, Vec<u32>) {
        let roles = self.shared.roles();
        let now = self.shared.clock.now();
        let (guard, users) = (&self.shared.guard, &self.shared.authority.users);
        let (in_force, status) = (guard.in_force(), guard.status());
        let context = ExplanationContext {
            caller: &self.caller,
            roles: &roles,
            disabled_reason: self.shared.disabled_reason.as_deref(),
            protected,
            guard: GuardContext {
                rules: &in_force.rules.compiled,
                is_stopped: status.tripped_at.is_some(),
                open: &status.open,
                simulated: &status.simulated,
                local_time: local_time_of(now),
                groups: &|uid| Some(users.groups_of(uid)?.to_vec()),
                accounts: &published.accounts,
            },
        };
        let people = RefCell::new(Vec::new());
        let explained = explain(published, pid, now, &context, |person| {
            if let Principal::User(uid) = person {
                people.borrow_mut().push(uid);
            }
            self.display_name(person)
        });
        let explained = explained.map(|explained| {
            let uses = published.snapshot.processes.iter();
            let mut its = uses.filter(|process| process.pid == pid);
            let rogue = its.next().map(|process| self.rogue_assessment(process));
            Explanation {
                rogue: rogue.unwrap_or(Reading::Unsupported),
                ..explained
            }
        });
        (explained, people.into_inner())
    }

    /// What is published after a scan of all processes.
    async fn published_after_scan(&self, since: ScanFreshness) -> Result<PublishedPoll, Refusal> {
        read_after_scan(&self.shared.full_scan, &self.shared.state, since).await
    }

    fn may_inspect(&self) -> Result<(), Refusal> {
        match check(&self.caller, Operation::View, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: "look".to_owned(),
                ask: "root".to_owned(),
            }),
        }
    }

    /// The holders of this device, or of all devices, after a scan of all processes.
    async fn list_holders(&self, device: Option<&DeviceId>) -> Result<HoldersAnswer, Refusal> {
        let published = self.published_after_scan(ScanFreshness::Recent).await?;
        let is_meant = |id: &DeviceId| device.is_none_or(|device| device == id);
        let held = published.holders.iter().filter(|held| is_meant(&held.id));
        let mut devices = published.snapshot.devices.iter();
        if let Some(device) = device
            && held.clone().next().is_none()
            && !devices.any(|known| known.id == *device)
        {
            let shown = sanitize(device.0.as_bytes(), 80);
            return Err(Refusal::NoMatch(format!("no such GPU: {shown:?}")));
        }
        Ok(HoldersAnswer::new(held, self.shared.clock.now()))
    }

    /// The display name of a person or group that may end a process.
    fn display_name(&self, person: Principal) -> String {
        let access = &self.shared.authority.config.borrow().access;
        match person {
            Principal::User(uid) => match self.shared.authority.users.name(uid).last_known() {
                Some(name) => name.clone(),
                None => format!("uid {uid}"),
            },
            Principal::Group(_) => format!("group {}", access.operator_group),
        }
    }
}
