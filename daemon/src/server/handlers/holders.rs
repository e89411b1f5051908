//! The holders of devices, after a scan of all processes; and the explanation of one process, from
//! what is known.

use super::super::explanation::{ExplanationContext, GuardContext, explain, explain_absence};
use super::super::holder_pages::HoldersAnswer;
use super::{Session, lock};
use crate::fd_scan::full_scan::{ScanFreshness, read_after_scan};
use crate::guard::local_time_of;
use crate::poll::process_inspector::InspectedProcess;
use crate::state::PublishedPoll;
use gpukill_policy::access::{Operation, Principal, Ruling, check};
use gpukill_proto::holders::{Explanation, HoldersPage};
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::text::sanitize;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an explanation waits for reads that may hang. Usual reads take a few milliseconds;
/// on a busy host they take longer, and an answer without them would say less than is known.
const INSPECTION_TIMEOUT: Duration = Duration::from_millis(500);

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
            let kept = lock(&self.pending_holders).clone();
            kept.ok_or(Refusal::Expired)?
        };
        let page = answer.page(start as usize, &self.caller, &self.shared.roles());
        // Kept only while there are more pages.
        *lock(&self.pending_holders) = page.next.map(|_| answer);
        Ok(page)
    }

    /// Returns all that is known of this process now. It waits for no scan of other processes.
    pub(crate) async fn explanation(&self, pid: u32) -> Result<Explanation, Refusal> {
        self.may_inspect()?;
        let deadline = Instant::now() + INSPECTION_TIMEOUT;
        let published = self.shared.state.borrow().clone();
        let (inspector, enforcer) = (
            Arc::clone(&self.shared.inspector),
            self.shared.enforcer.clone(),
        );
        let now = self.shared.clock.now();
        let caller = self.caller.limit_group;
        let inspect = tokio::task::spawn_blocking(move || {
            let inspected = inspector.inspect(&published, (pid, caller), now, deadline);
            (published, inspected)
        });
        let protect = tokio::task::spawn_blocking(move || enforcer.protection(pid, deadline));
        let (published, inspected) = inspect.await.map_err(|_| Refusal::Internal)?;
        let protected = protect.await.map_err(|_| Refusal::Internal)?;
        let explain = || self.explain_inspected(&published, &inspected, pid, protected.as_deref());
        if let (Some(_), people) = explain() {
            // The names were requested just now, perhaps for the first time.
            self.wait_for_names_until(&people, deadline).await;
            if let (Some(explained), _) = explain() {
                return Ok(explained);
            }
        }
        let procfs = {
            let config = self.shared.authority.config.borrow();
            config.backends.procfs_root.clone()
        };
        let reason = tokio::task::spawn_blocking(move || {
            explain_absence(&published, &inspected, &procfs, pid)
        });
        Err(reason.await.unwrap_or(Refusal::Internal))
    }

    /// Explains the process now, and lists the users that the explanation names.
    fn explain_inspected(
        &self,
        published: &PublishedPoll,
        inspected: &InspectedProcess,
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
        let explained = explain(published, inspected, pid, now, &context, |person| {
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
        let is_requested = |id: &DeviceId| device.is_none_or(|device| device == id);
        let held = published
            .holders
            .iter()
            .filter(|held| is_requested(&held.id));
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
