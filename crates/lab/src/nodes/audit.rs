//! The end of a story: what is open comes to its end, what is unknown is shown and resolved by an operator
//! who looks into the provider's ledger, and then every row is held against that ledger.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onejob::id::{attempt_text, job_text};
use onejob::store::{JobFilter, PostgresOptions, PostgresStore, Record, Store};
use onejob_core::{AttemptState, FailureClass, Slot};
use serde_json::{Value, json};

use super::{Acknowledged, Caller, Execution, World, until};

/// What an audit found, for those who ask whether the story has happened at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    pub jobs: usize,
    /// Attempts that were unknown when everything else had ended, by cause.
    pub unknown: BTreeMap<String, usize>,
    /// Of these, those that had never reached the provider; their jobs were done after an operator's word.
    pub never_sent: usize,
}

impl World {
    /// Audits by way of `node`, which is alive, and the store at `url`.
    pub async fn audit(&self, node: usize, url: &str, acknowledged: &Acknowledged) -> Audit {
        let port = self.nodes[node].port;
        let mut audit = Audit { jobs: 0, unknown: BTreeMap::new(), never_sent: 0 };
        self.settle(port).await;
        loop {
            let unknown = list(port, "/v1/attempts?state=unknown&limit=100", "attempts").await;
            if unknown.is_empty() {
                break;
            }
            for attempt in unknown {
                self.resolve(port, &attempt, &mut audit).await;
            }
            self.settle(port).await;
        }
        let records = records(url).await;
        audit.jobs = records.len();
        self.hold_against_the_ledger(&records, acknowledged);
        audit
    }

    /// Returns when nothing is queued or running.
    async fn settle(&self, port: u16) {
        for state in ["queued", "running"] {
            let path = format!("/v1/jobs?state={state}&limit=1");
            until(&format!("no job is {state}"), || async { list(port, &path, "jobs").await.is_empty() }).await;
        }
    }

    /// An operator with the provider's ledger in hand.
    async fn resolve(&self, port: u16, attempt: &Value, audit: &mut Audit) {
        let (id, job) = (attempt["id"].as_str().unwrap(), attempt["job_id"].as_str().unwrap());
        *audit.unknown.entry(attempt["cause"].as_str().unwrap().to_owned()).or_default() += 1;
        let body = match self.provider.of_job(job).iter().find(|execution| execution.attempt == id) {
            Some(done) => json!({ "outcome": "succeeded", "result": done.output(), "reason": "it is in the ledger" }),
            None => {
                audit.never_sent += 1;
                json!({ "outcome": "failed", "reason": "it is not in the ledger" })
            }
        };
        let answer = Caller::of(port).post(&format!("/v1/attempts/{id}/resolve"), body).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    fn hold_against_the_ledger(&self, records: &[Arc<Record>], acknowledged: &Acknowledged) {
        let of_key: HashMap<&str, &Arc<Record>> = records.iter().map(|r| (&*r.idempotency_key, r)).collect();
        assert_eq!(of_key.len(), records.len(), "a key has two jobs");
        for (key, id) in acknowledged {
            let found = of_key.get(&**key).map(|record| job_text(record.job.id));
            assert_eq!(found.as_ref(), Some(id), "{key} was acknowledged");
        }
        let mut executions: HashMap<String, Vec<Execution>> = HashMap::new();
        for execution in self.provider.ledger() {
            executions.entry(execution.job.clone()).or_default().push(execution);
        }
        for record in records {
            let done = executions.remove(&job_text(record.job.id)).unwrap_or_default();
            self.hold_against(record, &done);
        }
        assert!(executions.is_empty(), "the provider worked for jobs that are not there: {executions:?}");
    }

    /// One execution, one winner, and that it was; before it nothing but attempts that certainly did nothing.
    fn hold_against(&self, record: &Record, done: &[Execution]) {
        assert_eq!(record.job.unsound(), None, "{record:?}");
        let [execution] = done else { panic!("{} executions: {done:?} of {record:#?}", done.len()) };
        let Slot::Filled { by, result } = &record.job.slot else { panic!("no result: {record:#?}") };
        assert_eq!(attempt_text(*by), execution.attempt, "{record:#?}");
        assert_eq!(serde_json::from_str::<Value>(result).unwrap(), execution.output(), "{record:#?}");
        for attempt in record.job.attempts.iter().filter(|attempt| attempt.id != *by) {
            let certain = match &attempt.state {
                AttemptState::Failed { failure, .. } => failure.class,
                other => panic!("{other:?} beside a winner: {record:#?}"),
            };
            let did_nothing = matches!(certain, FailureClass::NotSent | FailureClass::NotExecuted);
            assert!(did_nothing, "{certain:?}: {record:#?}");
        }
    }
}

/// All jobs, read from the database itself.
async fn records(url: &str) -> Vec<Arc<Record>> {
    let store = Store::Postgres(Arc::new(PostgresStore::open(PostgresOptions::parse(url).unwrap()).await.unwrap()));
    let records = store.list_jobs(JobFilter { limit: 1_000_000, ..Default::default() }).await.unwrap();
    store.close().await;
    records
}

async fn list(port: u16, path: &str, member: &str) -> Vec<Value> {
    match Caller::of(port).get(path).await {
        Ok(mut answer) if answer.status == 200 => match answer.json[member].take() {
            Value::Array(list) => list,
            other => panic!("{path}: {other}"),
        },
        other => panic!("{path}: {other:?}"),
    }
}
