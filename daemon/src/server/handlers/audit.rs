//! The calls that read the store.

use super::super::visibility::Visibility;
use super::Session;
use crate::store::{ActionFilter, PastRights, SelectedDevices};
use gpukill_policy::access::{Operation, Ruling, check, may_read_command};
use gpukill_policy::select::{
    DeviceName, DeviceSelectorError, names_one_user_of, select_devices, user_number,
};
use gpukill_proto::audit::{
    ActionPage, ActionQuery, ActionRecord, AuditFilter, AuditPage, AuditQuery, AuditSeries,
    AuditSubject, AuditSummary, RunEnd, RunPage, RunQuery, RunRecord, SeriesQuery, TimelineEvent,
    TimelinePage, TimelineQuery,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Session {
    /// Returns one page of samples, without the command lines that are hidden from the caller.
    pub(crate) async fn audit_page(&self, query: AuditQuery) -> Result<AuditPage, Refusal> {
        let _permit = self.acquire_query_permit().await;
        let may_read = self.command_permission();
        let page = self
            .shared
            .store
            .sample_page(query, self.command_permission());
        let mut page = page.await?;
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

    /// Returns one page of runs, with the names of the users who ended them.
    pub(crate) async fn run_page(&self, query: RunQuery) -> Result<RunPage, Refusal> {
        let _permit = self.acquire_query_permit().await;
        let page = self.shared.store.run_page(query, self.command_permission());
        let mut page = page.await?;
        let ended_by = |run: &RunRecord| run.end.ended_by().0;
        let uids: BTreeSet<u32> = page.runs.iter().filter_map(ended_by).into_set();
        let uids: Vec<u32> = uids.into_iter().collect();
        self.wait_for_names(&uids).await;
        for run in &mut page.runs {
            if let RunEnd::Killed {
                by: Some(uid),
                by_name,
                ..
            } = &mut run.end
            {
                let name = self.shared.authority.users.name(*uid);
                *by_name = name.last_known().cloned();
            }
        }
        Ok(page)
    }

    /// Returns usage over time.
    pub(crate) async fn series(&self, query: SeriesQuery) -> Result<AuditSeries, Refusal> {
        let _permit = self.acquire_query_permit().await;
        let may_read = self.command_permission();
        self.shared.store.series(query, may_read).await
    }

    /// Summarises a period of the past.
    pub(crate) async fn summary(&self, filter: AuditFilter) -> Result<AuditSummary, Refusal> {
        let may_read = self.command_permission();
        let _permit = self.acquire_query_permit().await;
        self.shared.store.summary(filter, may_read).await
    }

    /// Returns one page of recorded actions. The requests, plans and outcomes of other users may be
    /// hidden from the caller; the fact that they acted is not.
    pub(crate) async fn actions(&self, query: ActionQuery) -> Result<ActionPage, Refusal> {
        let _permit = self.acquire_query_permit().await;
        let uids = match query.user.as_deref() {
            Some(typed) => Some(self.resolve_uids(typed).await?),
            None => None,
        };
        let devices = match query.gpu.as_deref() {
            Some(typed) => Some(self.resolve_devices(typed)?),
            None => None,
        };
        let may_read = self.action_permission();
        let filter = ActionFilter { uids, devices };
        let mut page = self
            .shared
            .store
            .action_page(query, filter, may_read)
            .await?;
        self.name_requesters(page.records.iter_mut().collect())
            .await;
        Ok(page)
    }

    /// Returns one page of a timeline. Command lines, and the requests, plans and outcomes of other
    /// users, may be hidden from the caller.
    pub(crate) async fn timeline_page(
        &self,
        query: TimelineQuery,
    ) -> Result<TimelinePage, Refusal> {
        let _permit = self.acquire_query_permit().await;
        let uids = match query.user.as_deref() {
            Some(typed) => self.resolve_uids(typed).await?,
            None => BTreeSet::new(),
        };
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        let rights = PastRights {
            may_read_command: Box::new(self.command_permission()),
            may_read_action: Box::new(self.action_permission()),
            redact_decision: Box::new(move |record| {
                let (caller, roles) = (&*caller, &roles);
                Visibility { caller, roles }.redact_record(record)
            }),
        };
        let mut page = self.shared.store.timeline(query, uids, rights).await?;
        let actions = page.entries.iter_mut();
        let actions = actions.filter_map(|entry| match &mut entry.event {
            TimelineEvent::Action(record) => Some(record),
            TimelineEvent::Started(_)
            | TimelineEvent::Ended(..)
            | TimelineEvent::Stretch { .. }
            | TimelineEvent::Guard(_)
            | TimelineEvent::Finding(_)
            | TimelineEvent::Gap(_) => None,
        });
        self.name_requesters(actions.collect()).await;
        Ok(page)
    }

    /// Adds the names of the users who requested these actions.
    async fn name_requesters(&self, records: Vec<&mut ActionRecord>) {
        let uids: BTreeSet<u32> = records.iter().filter_map(|it| it.uid).into_set();
        let uids: Vec<u32> = uids.into_iter().collect();
        self.wait_for_names(&uids).await;
        for record in records {
            let name = record.uid.map(|uid| self.shared.authority.users.name(uid));
            record.user = name.and_then(|name| name.last_known().cloned());
        }
    }

    /// Returns a function that tells whether the caller may see the request, plan and outcome of
    /// an action of this user.
    fn action_permission(&self) -> impl Fn(Option<u32>) -> bool + Send + Sync + 'static {
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        move |requester| {
            check(&caller, Operation::ReadAction { requester }, &roles) == Ruling::Allow
        }
    }

    /// The users in the record that a name or a number selects, or several with commas between. A
    /// single name that no user has now selects the users who had it, unless their numbers have
    /// other names now.
    async fn resolve_uids(&self, typed: &str) -> Result<BTreeSet<u32>, Refusal> {
        let each = || typed.split(',').map(str::trim);
        let mut found: BTreeSet<u32> = each().filter_map(user_number).into_set();
        if each().all(|user| user_number(user).is_some()) {
            return Ok(found);
        }
        let uids = self.shared.store.acting_uids().await?;
        let users = &self.shared.authority.users;
        self.wait_for_names(&uids).await;
        let by_name = |uid: &u32| {
            names_one_user_of(
                typed,
                Some(*uid),
                users.name(*uid).last_known().map(String::as_str),
            )
        };
        found.extend(uids.iter().copied().filter(by_name));
        if found.is_empty() && uids.iter().any(|uid| users.is_name_pending(*uid)) {
            let why = "the name service does not answer: use the number of the user";
            return Err(Refusal::Unavailable(why.into()));
        }
        if found.is_empty() {
            let has_no_name = |uid: &u32| matches!(users.name(*uid), Reading::Unsupported);
            let nameless: Vec<u32> = uids.into_iter().filter(has_no_name).collect();
            let store = &self.shared.store;
            // Without the samples no former name is known.
            let former = store.former_uids(typed.to_owned(), nameless).await;
            found.extend(former.unwrap_or_default());
        }
        Ok(found)
    }

    /// The devices that `typed` selects: present ones, or one that was present.
    fn resolve_devices(&self, typed: &str) -> Result<SelectedDevices, Refusal> {
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
        match select_devices(typed, &names) {
            Ok(positions) => {
                let ids = positions.into_iter().filter_map(|at| names.get(at));
                Ok(SelectedDevices::Present(
                    ids.map(|it| it.id.to_owned()).collect(),
                ))
            }
            Err(
                error @ (DeviceSelectorError::Unknown { .. }
                | DeviceSelectorError::Unmatched { .. }),
            ) => Ok(SelectedDevices::Gone(typed.to_owned(), error.into())),
            Err(
                error @ (DeviceSelectorError::Ambiguous { .. }
                | DeviceSelectorError::ReversedRange { .. }),
            ) => Err(error.into()),
        }
    }

    /// Returns a function that tells whether the caller may see the command line of a process of
    /// this user, in a user namespace of this user.
    fn command_permission(
        &self,
    ) -> impl Fn(Option<u32>, Option<u32>) -> bool + Send + Sync + 'static {
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        move |owner, namespace_owner| may_read_command(&caller, (owner, namespace_owner), &roles)
    }
}
