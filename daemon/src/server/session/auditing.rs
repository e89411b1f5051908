//! The calls that ask the store of the past.

use super::super::is_privileged;
use super::super::turns::{Turn, Turns};
use super::Session;
use crate::audit::{Chosen, Whom};
use gpukill_policy::access::{Operation, Ruling, check};
use gpukill_policy::select::{DeviceName, NoSuchDevice, devices, is_user};
use gpukill_proto::audit::{
    ActionPage, ActionQuery, AuditFilter, AuditPage, AuditQuery, AuditSubject, AuditSummary,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Session {
    /// One page of samples, without the command lines that are others' secret.
    pub(super) async fn audit_page(&self, query: AuditQuery) -> Result<AuditPage, Refusal> {
        let _turn = self.turn().await;
        let mut page = self.shared.store.page(query).await?;
        let may_read = self.may_read();
        for record in &mut page.records {
            if let AuditSubject::Process {
                uid,
                namespace_owner,
                command,
                ..
            } = &mut record.subject
                && !may_read(*uid, *namespace_owner)
            {
                *command = Reading::Withheld;
            }
        }
        Ok(page)
    }

    /// What a stretch of the past comes to.
    pub(super) async fn summary(&self, filter: AuditFilter) -> Result<AuditSummary, Refusal> {
        let may_read = self.may_read();
        let _turn = self.turn().await;
        self.shared.store.summary(filter, may_read).await
    }

    /// One page of what was done. What others asked for, planned and got may be
    /// their secret; that they did is not.
    pub(super) async fn actions(&self, query: ActionQuery) -> Result<ActionPage, Refusal> {
        let _turn = self.turn().await;
        let uids = match query.user.as_deref() {
            Some(typed) => Some(self.uids_of(typed).await?),
            None => None,
        };
        let devices = match query.gpu.as_deref() {
            Some(typed) => Some(self.chosen(typed)?),
            None => None,
        };
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        let may_read = move |by| check(&caller, Operation::ReadAct { by }, &roles) == Ruling::Allow;
        let whom = Whom { uids, devices };
        let mut page = self.shared.store.actions(query, whom, may_read).await?;
        let uids: BTreeSet<u32> = page.records.iter().filter_map(|it| it.uid).into_set();
        let uids: Vec<u32> = uids.into_iter().collect();
        self.learn_names(&uids).await;
        for record in &mut page.records {
            let name = record.uid.map(|uid| self.shared.authority.users.name(uid));
            record.user = name.and_then(|name| name.last_known().cloned());
        }
        Ok(page)
    }

    /// Waits until the caller may ask the store.
    pub(super) async fn turn(&self) -> Turn {
        self.turn_of(&self.shared.turns).await
    }

    /// Waits for the caller's turn among those who wait for the same.
    pub(super) async fn turn_of(&self, turns: &Turns) -> Turn {
        if is_privileged(&self.caller, &self.shared.roles()) {
            Turns::privileged()
        } else {
            turns.plain(self.caller.limit_group).await
        }
    }

    /// Those of the record who are meant by a name or a number.
    async fn uids_of(&self, typed: &str) -> Result<BTreeSet<u32>, Refusal> {
        let number = typed
            .parse()
            .ok()
            .filter(|uid| is_user(typed, Some(*uid), None));
        if let Some(uid) = number {
            return Ok([uid].into());
        }
        let everybody = self.shared.store.who_acted().await?;
        let users = &self.shared.authority.users;
        self.learn_names(&everybody).await;
        let by_name = |uid: &u32| {
            is_user(
                typed,
                Some(*uid),
                users.name(*uid).last_known().map(String::as_str),
            )
        };
        let found: BTreeSet<u32> = everybody.iter().copied().filter(by_name).into_set();
        if found.is_empty() && everybody.iter().any(|uid| users.is_asking_for(*uid)) {
            let why = "the name service does not answer: ask for the user's number";
            return Err(Refusal::Unavailable(why.into()));
        }
        Ok(found)
    }

    /// The devices that are meant, of those that are there now, or of which one was.
    fn chosen(&self, typed: &str) -> Result<Chosen, Refusal> {
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let text = |it: &Reading<String>| it.last_known().cloned();
        let known = snapshot.devices.iter();
        let known: Vec<_> = known
            .map(|it| (it, text(&it.pci), text(&it.name)))
            .collect();
        let names = known.iter().map(|(device, pci, name)| DeviceName {
            index: device.index,
            id: &device.id.0,
            pci: pci.as_deref(),
            name: name.as_deref(),
        });
        let names: Vec<DeviceName<'_>> = names.collect();
        match devices(typed, &names) {
            Ok(positions) => {
                let ids = positions.into_iter().filter_map(|at| names.get(at));
                Ok(Chosen::These(ids.map(|it| it.id.to_owned()).collect()))
            }
            Err(error @ NoSuchDevice::Unknown { .. }) => Ok(Chosen::Gone(
                typed.to_owned(),
                Refusal::NoMatch(error.to_string()),
            )),
            Err(error @ (NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. })) => {
                Err(Refusal::Invalid(error.to_string()))
            }
        }
    }

    /// Whether this caller may see the command line of a process of this user, in
    /// this user's namespace.
    fn may_read(&self) -> impl Fn(Option<u32>, Option<u32>) -> bool + Send + 'static {
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        move |owner, namespace_owner| {
            let read = Operation::ReadCommand {
                owner,
                namespace_owner,
            };
            matches!(check(&caller, read, &roles), Ruling::Allow)
        }
    }
}
