//! Nodes that share certificates, and may be configured differently while a new configuration is rolled out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onejob::engine::{Engine, Order, Ordered};
use onejob::intent::Intent;
use onejob::store::{
    Begun, Certificate, PostgresStore, Record, Run, Store, Submit, Submitted, Verification, VerificationId,
};
use onejob::{Config, JobState};
use onejob_core::{CertificateId, Digest, Effects, Failover, JobId, Plan, Slot};
use onejob_lab::postgres::{Cluster, Database};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[providers.main]
kind = "simulated"
behaviour = "{{ input.main }}"
[providers.backup]
kind = "simulated"
behaviour = "{{ input.backup }}"
[tasks.poster]
providers = ["main", "backup"]
tries = 1
[tasks.poster.contract]
cases = "cases.toml"
"#;

/// A node that runs until it is stopped.
struct Node {
    engine: Engine,
    stop: oneshot::Sender<()>,
    run: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Node {
    async fn start(database: &Database<'_>) -> Node {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cases.toml"), "[[case]]\nname = \"one\"\ninput = {}\n").unwrap();
        let text = format!("[server]\nstore = {:?}\n{CONFIG}", database.url());
        let config = Config::parse(&text, "onejob.toml", dir.path(), &|_| None).unwrap();
        let engine = Engine::open(Arc::new(config)).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = engine.clone();
        let run = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await });
        Node { engine, stop, run, _dir: dir }
    }

    async fn stop(self) {
        drop(self.stop);
        self.run.await.unwrap();
    }

    fn contract(&self) -> Digest {
        let config = self.engine.config();
        config.contract_digest(&config.tasks["poster"], &config.providers["backup"])
    }

    async fn submit(&self, key: &str, input: &Value) -> JobId {
        let order = Order {
            owner: "ann".into(),
            idempotency_key: key.into(),
            intent: Intent::new("poster", input, None),
            metadata: "{}".into(),
            priority: 0,
            run_at: None,
            deadline: None,
        };
        match self.engine.submit(order).await.unwrap() {
            Ordered::Stored(Submitted::New(record)) => record.job.id,
            other => panic!("{other:?}"),
        }
    }

    async fn end_of(&self, job: JobId) -> Arc<Record> {
        let end = Instant::now() + LIMIT;
        loop {
            let record = self.engine.wait(job, Duration::from_secs(5)).await.unwrap().unwrap();
            if record.job.state().is_terminal() {
                return record;
            }
            assert!(Instant::now() < end, "{record:?}");
        }
    }
}

async fn certify(store: &Store, number: u128, contract_digest: Digest, model: Option<&str>) -> CertificateId {
    let now = store.now();
    let run = Run { id: VerificationId(number), task: "poster".into(), provider: "backup".into() };
    assert_eq!(store.begin_verification(run.clone(), now, now + 9_000).await.unwrap(), Begun::Yes);
    let certificate = Certificate {
        id: CertificateId(number),
        task: run.task.clone(),
        provider: run.provider.clone(),
        contract_digest,
        model: model.map(Into::into),
        detail: "{}".into(),
        issued_at: now,
        valid_until: now + 3_600_000,
        suspended: None,
    };
    let id = certificate.id;
    let (report, certificate_id) = ("{}".into(), Some(id));
    let passed = Verification {
        contract_digest,
        started_at: now,
        ended_at: now,
        passed: true,
        report,
        certificate: certificate_id,
    };
    assert!(store.end_verification(run, passed, Some(certificate)).await.unwrap());
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_a_node_that_is_configured_otherwise_leaves_a_job_a_while_and_then_plans_it_anew() {
    let database = Cluster::shared().database().await;
    let store = Store::Postgres(Arc::new(PostgresStore::open(database.options()).await.unwrap()));
    // Planned by a node with another contract, which is gone since.
    let certificate = certify(&store, 1, [9; 32], None).await;
    let plan =
        Plan { provider: "backup".into(), primary: "main".into(), certificate: Some(certificate), due_at: store.now() };
    let due_at = plan.due_at;
    let submit = Submit {
        id: JobId(u128::from(due_at.unsigned_abs()) << 80),
        owner: "ann".into(),
        idempotency_key: "click".into(),
        intent: Intent::new("poster", &json!({}), None),
        metadata: "{}".into(),
        priority: 0,
        run_at: None,
        deadline: None,
        effects: Effects::Exclusive,
        plan,
        start: None,
        at: due_at,
    };
    let job = submit.id;
    store.submit(submit).await.unwrap();
    let node = Node::start(&database).await;
    let record = node.end_of(job).await;
    let attempt = &record.job.attempts[0];
    assert_eq!((record.job.state(), &*attempt.provider, attempt.certificate), (JobState::Succeeded, "main", None));
    assert!(attempt.started_at >= due_at + 2_000, "it was left to the others");
    node.stop().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_what_one_node_issues_and_takes_back_holds_for_the_others_at_the_next_failure() {
    let database = Cluster::shared().database().await;
    let (one, two) = (Node::start(&database).await, Node::start(&database).await);
    let input = json!({ "main": { "status": 429 }, "backup": { "output": 2 } });
    let certificate = certify(one.engine.store(), 1, one.contract(), None).await;
    let taken_over = two.end_of(two.submit("first", &input).await).await;
    assert_eq!(taken_over.job.attempts[1].certificate, Some(certificate));
    assert!(one.engine.suspend(certificate, "by hand".into()).await.unwrap());
    let failed = two.end_of(two.submit("second", &input).await).await;
    let Slot::GivenUp(why) = &failed.job.slot else { panic!("{failed:?}") };
    assert_eq!((why.failover, failed.job.attempts.len()), (Failover::NoVerifiedProvider, 1));
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r9_an_answer_of_another_model_takes_back_what_another_node_issued() {
    let database = Cluster::shared().database().await;
    let (one, two) = (Node::start(&database).await, Node::start(&database).await);
    certify(one.engine.store(), 1, one.contract(), Some("m-1")).await;
    // What this node has not read yet it reads at the failure that leads there.
    let input = json!({ "main": { "status": 429 }, "backup": { "output": 2, "model": "m-2" } });
    let won = two.end_of(two.submit("first", &input).await).await;
    assert_eq!(won.job.state(), JobState::Succeeded, "the work is done");
    let failed = one.end_of(one.submit("second", &input).await).await;
    assert_eq!((failed.job.state(), failed.job.attempts.len()), (JobState::Failed, 1));
    one.stop().await;
    two.stop().await;
}
