//! A job inside a caller's own transaction: it is there when the caller commits, and never was when not.
//!
//! No attempt is started in it, and no row of a job that somebody works on is held: a caller may keep its
//! transaction open as long as it likes, and no answer of a provider waits for it.

use std::sync::Arc;

use onejob_core::JobId;
use tokio_postgres::Transaction;

use super::columns::{Known, at, bind_ids, bind_notices, id_at, read_jobs};
use super::fault::{Fault, sentence};
use super::lane::RETRIES;
use super::link::{Call, First, Link, column};
use super::submit::{Sending, write};
use super::write::{self, Kind, Planned};
use super::{PostgresStore, Shared, sql};
use crate::store::notice::conflict_notice;
use crate::store::{Record, StoreError, Submit, Submitted};

/// Why a job is not part of a transaction. What was done for it was taken back to where it began; the rest
/// of the transaction stands, as far as the database lets it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WithinError {
    /// Another transaction was in the way: a serialization failure, a deadlock, a lock that was not given in
    /// time, a snapshot that is too old. Roll back and run the whole transaction again, with the same key.
    #[error("another transaction was in the way: roll back and run this one again, with the same key ({0})")]
    Again(String),
    /// The transaction's database is not the one that this node works on: nobody would ever see the job.
    #[error("the transaction belongs to another database than this node's store")]
    OtherDatabase,
    /// The store has no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a sentence ends that says that there is no such table, or no such schema.
const NOT_MIGRATED: [&str; 2] = ["(42P01)", "(3F000)"];

type Result<T> = std::result::Result<T, WithinError>;

impl PostgresStore {
    /// Makes the job, or finds it, inside a transaction of the caller's own, in this store's database; the
    /// job is there when the caller has committed. `submit` brings no start.
    ///
    /// # Errors
    ///
    /// [`WithinError`]; the transaction is as it was before.
    pub async fn submit_in(&self, transaction: &mut Transaction<'_>, submit: &Submit) -> Result<Submitted> {
        self.open_queues()?;
        submit_within(&self.shared, transaction, submit).await
    }

    /// Tells the other nodes of jobs that a caller has committed.
    pub fn tell(&self, records: &[Arc<Record>]) {
        self.shared.tell(records);
    }
}

impl Shared {
    /// What tells this database from others.
    async fn identity(&self) -> crate::store::Result<i64> {
        let asked = self.identity.get_or_try_init(|| async {
            let rows = self.reads.ask(&sql::SCHEMA_IDENTITY, Vec::new()).await?;
            let row = rows.first().ok_or_else(|| Fault::Row("schema_identity.sql gave no row".into()))?;
            at(row, 0)
        });
        Ok(*asked.await?)
    }
}

async fn submit_within(shared: &Shared, transaction: &mut Transaction<'_>, submit: &Submit) -> Result<Submitted> {
    // A savepoint that is dropped is taken back: after a refusal, and when the caller stops waiting.
    let savepoint = transaction.savepoint("onejob").await.map_err(|error| StoreError::Unavailable(sentence(&error)))?;
    let submitted = {
        let mut link = Link::within(&savepoint, sql::LASTING.text);
        make_or_find(shared, &mut link, submit).await?
    };
    let end = match &submitted {
        // The key was free for a moment; what was made of it goes again (R12).
        Submitted::Expired(_) => savepoint.rollback().await,
        Submitted::New(_) | Submitted::Same(_) | Submitted::OtherIntent(_) => savepoint.commit().await,
    };
    end.map_err(|error| StoreError::Unavailable(sentence(&error)))?;
    Ok(submitted)
}

async fn make_or_find(shared: &Shared, link: &mut Link<'_>, submit: &Submit) -> Result<Submitted> {
    let record = Arc::new(submit.record());
    let ours = record.job.id;
    let made = write(shared, link, std::slice::from_ref(&record), Sending::Together).await?;
    let key = |text: &str| vec![text.to_owned()];
    let (owner, name) = (key(&submit.owner), key(&submit.idempotency_key));
    let bound = vec![column(&owner, |it| &**it), column(&name, |it| &**it)];
    let calls = [Call::new(&sql::SCHEMA_IDENTITY, Vec::new()), Call::new(&sql::JOB_BY_KEY, bound)];
    let answers = link.run(First::GoOn, &calls).await?;
    let here: Option<i64> = answers[0].first().and_then(|row| row.try_get(0).ok());
    if here != Some(shared.identity().await?) {
        return Err(WithinError::OtherDatabase);
    }
    if let Some(tombstone) = made.tombstones.values().next() {
        return Ok(Submitted::Expired(*tombstone));
    }
    let mut others = Vec::new();
    for row in &answers[1] {
        others.push(JobId(id_at(row, 2)?));
    }
    others.retain(|job| *job != ours);
    match (made.ids.is_empty(), others.first()) {
        (false, None) => Ok(Submitted::New(record)),
        // R12: the key was free only because its job was pruned after what this transaction sees of the world.
        (false, Some(_)) => Err(WithinError::Again("the key's job was pruned meanwhile".into())),
        (true, None) => Err(WithinError::Again("the key's job was pruned meanwhile".into())),
        (true, Some(job)) => meet(link, submit, *job).await,
    }
}

/// The key is taken. A job's intent never changes once it is there (R3), so nothing need be held to compare.
async fn meet(link: &mut Link<'_>, submit: &Submit, job: JobId) -> Result<Submitted> {
    for _ in 0..RETRIES {
        let answers = link.run(First::GoOn, &[Call::new(&sql::JOB_BY_ID, bind_ids(&[job]))]).await?;
        let known: Known = match read_jobs(&answers[0])?.remove(&job) {
            Some(read) => read?,
            None => return Err(WithinError::Again("the key's job was pruned meanwhile".into())),
        };
        match &known.record.intent {
            Some(intent) if intent.fingerprint == submit.intent.fingerprint => {
                return Ok(Submitted::Same(known.record));
            }
            Some(_) => {
                let notices = [conflict_notice(job, &submit.intent, submit.at)];
                link.run(First::GoOn, &[Call::new(&sql::NOTICE, bind_notices(&notices))]).await?;
                return Ok(Submitted::OtherIntent(known.record));
            }
            // Cancelled by its key before any post: this is the post.
            None => {
                let after = Arc::new(submit.filled_in(&known.record));
                let planned = Planned { before: known, after: after.clone(), kind: Kind::FillIn, notices: Vec::new() };
                match write::write(link, First::GoOn, &[&planned], None).await {
                    Ok(_) => return Ok(Submitted::Same(after)),
                    // Another post was faster: what it said is read now.
                    Err(Fault::Stale(_)) => {}
                    Err(fault) => return Err(fault.into()),
                }
            }
        }
    }
    Err(WithinError::Again("the key's job changes faster than it can be read".into()))
}

impl From<Fault> for WithinError {
    fn from(fault: Fault) -> WithinError {
        match fault {
            Fault::Retry(why) | Fault::Held(why) => WithinError::Again(why),
            Fault::Away(why) if NOT_MIGRATED.iter().any(|code| why.ends_with(code)) => WithinError::OtherDatabase,
            Fault::Row(_) | Fault::Stale(_) | Fault::NoLease | Fault::Away(_) | Fault::Ambiguous(_) => {
                WithinError::Store(fault.into())
            }
        }
    }
}
