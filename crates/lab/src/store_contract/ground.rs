//! What clauses stand on: makers of stores, jobs and events, all with plain numbers for ids and times.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use onejob::intent::{Intent, digest};
use onejob::store::postgres::DueBy;
use onejob::store::{
    Applied, Begun, Certificate, Contracts, Hold, JobFilter, MemoryStore, PostgresStore, Record, Run, SqliteOptions,
    SqliteStore, Store, StoredNotice, Submit, Submitted, Verification, VerificationId,
};
use onejob_core::{
    AttemptId, Cause, CertificateId, Digest, Effects, Event, Evidence, Failure, FailureClass, Follow, JobId, Millis,
    NodeId, Payload, Plan, Policy, Seen, Start, Trigger, Verdict, What,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::postgres::{Bouncer, Cluster, Database};

/// Now, in most clauses.
pub const NOW: Millis = 1_000_000;

/// The digest of the contract of `poster` at every provider.
pub const CONTRACT: Digest = [0xc0; 32];

/// The node that starts attempts.
pub const HERE: NodeId = NodeId(0xa0de);

/// Which store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Memory,
    Sqlite,
    Postgres,
    /// PostgreSQL through PgBouncer in transaction mode.
    Pooled,
}

/// A place for stores of one kind; at the end it looks whether what they hold makes sense.
pub struct Ground {
    kind: Kind,
    dir: TempDir,
    stores: Mutex<Vec<Store>>,
    databases: Mutex<Vec<Database<'static>>>,
    ids: AtomicU64,
}

impl Ground {
    pub fn new(kind: Kind) -> Ground {
        let dir = tempfile::tempdir().unwrap();
        Ground { kind, dir, stores: Mutex::default(), databases: Mutex::default(), ids: AtomicU64::new(1) }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn store(&self) -> Store {
        self.make(None)
    }

    /// A store that calls `hold` between each decision and its write.
    pub fn store_with(&self, hold: Hold) -> Store {
        self.make(Some(hold))
    }

    fn make(&self, hold: Option<Hold>) -> Store {
        let mut stores = self.stores.lock().unwrap();
        let store = match self.kind {
            Kind::Memory => Store::Memory(Arc::new(match hold {
                Some(hold) => MemoryStore::with_hold(hold),
                None => MemoryStore::new(),
            })),
            Kind::Sqlite => {
                let options = SqliteOptions { hold, ..SqliteOptions::default() };
                Store::Sqlite(Arc::new(SqliteStore::open(&self.file(stores.len()), options).unwrap()))
            }
            Kind::Postgres | Kind::Pooled => Store::Postgres(Arc::new(now_and_here(async {
                let database = Cluster::shared().database().await;
                let mut options = match self.kind {
                    Kind::Pooled => Bouncer::shared().options(&database),
                    Kind::Memory | Kind::Sqlite | Kind::Postgres => database.options(),
                };
                (options.hold, options.clock) = (hold, DueBy::Caller);
                self.databases.lock().unwrap().push(database);
                PostgresStore::open(options).await.unwrap()
            }))),
        };
        stores.push(store.clone());
        store
    }

    fn file(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("{number}.db"))
    }

    /// A new id; later ones are greater.
    pub fn id(&self) -> u128 {
        u128::from(self.ids.fetch_add(1, Ordering::Relaxed))
    }

    pub fn job_id(&self) -> JobId {
        JobId(self.id())
    }

    pub fn attempt_id(&self) -> AttemptId {
        AttemptId(self.id())
    }

    /// A wish of `owner` under `key`: an exclusive task at the provider `main`, due now, no slot held.
    pub fn wish(&self, owner: &str, key: &str) -> Submit {
        Submit {
            id: self.job_id(),
            owner: owner.into(),
            idempotency_key: key.into(),
            intent: intent(&json!({"n": 1})),
            metadata: "{}".into(),
            priority: 0,
            run_at: None,
            deadline: None,
            effects: Effects::Exclusive,
            plan: plan("main", NOW),
            start: None,
            at: NOW,
        }
    }

    /// The same with a slot held: its first attempt starts in the same commit.
    pub fn started_wish(&self, owner: &str, key: &str) -> Submit {
        let start = self.start("main", Trigger::Plan);
        Submit { start: Some(start), ..self.wish(owner, key) }
    }

    pub fn start(&self, provider: &str, trigger: Trigger) -> Start {
        Start {
            attempt: self.attempt_id(),
            provider: provider.into(),
            primary: "main".into(),
            certificate: None,
            trigger,
            node: HERE,
        }
    }

    /// A certificate of `provider` for the task of every wish.
    pub async fn certify(&self, store: &Store, provider: &str) -> CertificateId {
        let id = CertificateId(self.id());
        let run = Run { id: VerificationId(self.id()), task: "poster".into(), provider: provider.into() };
        assert_eq!(store.begin_verification(run.clone(), NOW, NOW + 60).await.unwrap(), Begun::Yes);
        let certificate = Certificate {
            id,
            task: run.task.clone(),
            provider: run.provider.clone(),
            contract_digest: CONTRACT,
            model: None,
            detail: "{}".into(),
            issued_at: NOW,
            valid_until: NOW + 3_600_000,
            suspended: None,
        };
        let passed = Verification {
            contract_digest: CONTRACT,
            started_at: NOW,
            ended_at: NOW,
            passed: true,
            report: "{}".into(),
            certificate: Some(id),
        };
        assert!(store.end_verification(run, passed, Some(certificate)).await.unwrap());
        id
    }

    /// A job with one starting attempt.
    pub async fn starting(&self, store: &Store, key: &str) -> Arc<Record> {
        made(store, self.started_wish("ann", key)).await
    }

    /// A racing job with two running attempts.
    pub async fn racing(&self, store: &Store, key: &str) -> (JobId, AttemptId, AttemptId) {
        let job = made(store, Submit { effects: Effects::Racing, ..self.started_wish("ann", key) }).await;
        let (id, first) = (job.job.id, job.job.attempts[0].id);
        does(store, id, running(first)).await;
        let start = Start { provider: "backup".into(), ..self.start("main", Trigger::Hand { force: true }) };
        let second = start.attempt;
        does(store, id, What::Start(start)).await;
        does(store, id, running(second)).await;
        (id, first, second)
    }

    /// Looks whether everything that the stores hold makes sense.
    pub async fn end(&self) {
        let stores = std::mem::take(&mut *self.stores.lock().unwrap());
        for store in stores {
            let Ok(jobs) = store.list_jobs(all_jobs()).await else { continue };
            for record in jobs {
                assert_eq!(record.job.unsound(), None, "{record:?}");
            }
            store.close().await;
        }
        let databases = std::mem::take(&mut *self.databases.lock().unwrap());
        for database in databases {
            database.drop().await;
        }
    }
}

/// Waits in the middle of what does not wait.
fn now_and_here<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

/// A filter that keeps everything.
pub fn all_jobs() -> JobFilter {
    JobFilter { limit: 100_000, ..JobFilter::default() }
}

/// What a node is configured with that knows the task of every wish.
pub fn contracts() -> Arc<Contracts> {
    Arc::new(Contracts::from([("poster".into(), CONTRACT)]))
}

pub fn intent(input: &Value) -> Intent {
    Intent::new("poster", input, None)
}

pub fn plan(provider: &str, due_at: Millis) -> Plan {
    Plan { provider: provider.into(), primary: "main".into(), certificate: None, due_at }
}

pub fn payload(text: &str) -> Payload {
    Payload { text: text.into(), digest: digest(text.as_bytes()) }
}

pub fn running(attempt: AttemptId) -> What {
    What::Running { attempt, evidence: Evidence::Answer }
}

pub fn silent(attempt: AttemptId) -> What {
    What::Silent { attempt, cause: Cause::Timeout }
}

pub fn succeeded(attempt: AttemptId, result: &str) -> What {
    What::Succeeded { attempt, result: payload(result), seen: Seen::default(), evidence: Evidence::Answer }
}

/// It failed, and nothing follows.
pub fn failed(attempt: AttemptId, class: FailureClass) -> What {
    What::Failed {
        attempt,
        failure: Failure::from(class),
        seen: Seen::default(),
        evidence: Evidence::Answer,
        follow: Follow { policy: Arc::new(Policy::nothing_more()), jitter: 0 },
    }
}

/// Submits what must be new.
pub async fn made(store: &Store, submit: Submit) -> Arc<Record> {
    match store.submit(submit).await.unwrap() {
        Submitted::New(record) => record,
        other => panic!("expected a new job: {other:?}"),
    }
}

/// Applies at [`NOW`] what must be allowed.
pub async fn does(store: &Store, job: JobId, what: What) -> (Arc<Record>, Verdict) {
    match store.apply(job, Event { at: NOW, what }).await.unwrap() {
        Applied::Done { record, verdict } => (record, verdict),
        other => panic!("expected it to be allowed: {other:?}"),
    }
}

/// Applies at [`NOW`] what must be refused, and says why it was.
pub async fn refused(store: &Store, job: JobId, what: What) -> onejob_core::Illegal {
    match store.apply(job, Event { at: NOW, what }).await.unwrap() {
        Applied::Refused { why, .. } => why,
        other => panic!("expected it to be refused: {other:?}"),
    }
}

/// The job as it is read now.
pub async fn job(store: &Store, id: JobId) -> Arc<Record> {
    store.job(id).await.unwrap().unwrap()
}

/// The kinds of a job's notices, oldest first.
pub async fn kinds(store: &Store, id: JobId) -> Vec<String> {
    store.notices(id).await.unwrap().iter().map(|notice| notice.kind.to_string()).collect()
}

/// The one notice of that kind.
pub async fn notice(store: &Store, id: JobId, kind: &str) -> StoredNotice {
    let notices = store.notices(id).await.unwrap();
    let mut of_kind = notices.into_iter().filter(|notice| &*notice.kind == kind);
    let one = of_kind.next().unwrap();
    assert_eq!(of_kind.next(), None);
    one
}

/// Holds the first decision open until a second one is being made too. Where the lock stands there
/// never is a second one; then it goes on after a moment. So a missing lock shows every time.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<(Mutex<Passing>, Condvar)>,
}

#[derive(Default)]
struct Passing {
    is_armed: bool,
    deciding: u32,
}

impl Gate {
    /// Long enough for the second decision to be reached if nothing stands before it.
    const MOMENT: Duration = Duration::from_millis(250);

    pub fn hold(&self) -> Hold {
        let gate = self.clone();
        Hold::new(move |_| gate.pass())
    }

    /// From now on decisions are held.
    pub fn arm(&self) {
        self.shared.0.lock().unwrap().is_armed = true;
    }

    /// Waits until a decision is being held.
    pub fn wait_for_the_first(&self) {
        let passing = self.shared.0.lock().unwrap();
        drop(self.shared.1.wait_while(passing, |p| p.deciding == 0).unwrap());
    }

    fn pass(&self) {
        let mut passing = self.shared.0.lock().unwrap();
        if !passing.is_armed {
            return;
        }
        passing.deciding += 1;
        self.shared.1.notify_all();
        if passing.deciding == 1 {
            drop(self.shared.1.wait_timeout_while(passing, Gate::MOMENT, |p| p.deciding < 2).unwrap());
        }
    }
}
