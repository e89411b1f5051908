//! Questions about the record of what was done.

use super::query::{self, Whom};
use super::{Inquiry, Store};
use gpukill_proto::audit::{ActionPage, ActionQuery};
use gpukill_proto::refusal::Refusal;

impl Store {
    /// One page of what was done, by and to `whom`. `may_read` says of whose acts the
    /// asker may see what was asked for, planned and came of it.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn actions(
        &self,
        query: ActionQuery,
        whom: Whom,
        may_read: impl Fn(Option<u32>) -> bool + Send + 'static,
    ) -> Result<ActionPage, Refusal> {
        self.ask(Inquiry::Audit, move |file| {
            query::actions(file, &query, &whom, &may_read)
        })
        .await
    }

    /// Everybody who asked for something that is recorded; many are cut.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) async fn who_acted(&self) -> Result<Vec<u32>, Refusal> {
        self.ask(Inquiry::Audit, query::who_acted).await
    }
}
