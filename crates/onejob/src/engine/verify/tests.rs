use std::time::Duration;

use onejob_core::{FailureClass, Meaning, Seen};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::calls::{TRIES_AGAIN, pause_after};
use super::schedule::is_due;
use super::*;
use crate::config::Config;
use crate::contract::verify::Came;
use crate::provider::Answer;

/// A contract whose one case the simulated providers answer as `answer` says.
async fn engine(contract: &str, answer: &str) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let cases = format!("[[case]]\nname = \"a\"\ninput = {{ simulate = {answer} }}\nexpect = [\"output == 'x'\"]\n");
    std::fs::write(folder.path().join("cases.toml"), cases).unwrap();
    let text = format!(
        "[server]\nstore = \"memory:\"\n[providers.main]\nkind = \"simulated\"\n[providers.backup]\nkind = \"simulated\"\n\
         [tasks.t]\nproviders = [\"main\", \"backup\"]\ncontract = {{ cases = \"cases.toml\", repeat = 1{contract} }}\n"
    );
    let config = Config::parse(&text, "onejob.toml", folder.path(), &|_| None);
    Engine::open(Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")))).await.unwrap()
}

/// A chat provider with a tokenizer's endpoint, both at an address.
async fn chat_engine(at: std::net::SocketAddr) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cases.toml"), "[[case]]\nname = \"a\"\ninput = { text = \"x\" }\n").unwrap();
    let text = format!(
        "[server]\nstore = \"memory:\"\n[providers.backup]\npreset = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"http://{at}\"\n\
         tokenizer = {{ endpoint = \"http://{at}/tokenize\" }}\n[tasks.t]\nproviders = [\"backup\"]\n\
         contract = {{ cases = \"cases.toml\", repeat = 1 }}\nchat = {{ user = \"{{{{ input.text }}}}\" }}\n"
    );
    let config = Config::parse(&text, "onejob.toml", folder.path(), &|_| None);
    Engine::open(Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")))).await.unwrap()
}

/// Gives a pair the certificate of a run that passed.
async fn certify(engine: &Engine, provider: &str) {
    let run = Run { id: id::new_verification_id(), task: "t".into(), provider: provider.into() };
    let (inner, now) = (&engine.inner, engine.now());
    assert_eq!(inner.begin(&run).await.unwrap(), Begun::Yes);
    let contract_digest = inner.config.contract_digest(&inner.config.tasks["t"], &inner.config.providers[provider]);
    let certificate = Certificate {
        id: id::new_certificate_id(),
        task: "t".into(),
        provider: provider.into(),
        contract_digest,
        model: None,
        detail: "{}".into(),
        issued_at: now,
        valid_until: now + 3_600_000,
        suspended: None,
    };
    let verification = Verification {
        contract_digest,
        started_at: now,
        ended_at: now,
        passed: true,
        report: "{}".into(),
        certificate: Some(certificate.id),
    };
    assert!(engine.end_verification(run, verification, Some(certificate)).await.unwrap());
}

async fn standing(engine: &Engine, provider: &str) -> Standing {
    let mut all = engine.contracts().await.unwrap();
    all.retain(|standing| &*standing.provider.name == provider);
    all.remove(0)
}

fn calls(engine: &Engine) -> Calls {
    let inner = engine.inner.clone();
    let (lane, task) = (inner.lanes.get("backup").unwrap().clone(), inner.config.tasks["t"].clone());
    Calls { inner, lane, task }
}

#[tokio::test(start_paused = true)]
async fn a_contract_that_says_verify_every_is_verified_by_itself() {
    let engine = engine(", verify_every = \"1d\"", "{ output = \"x\" }").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = engine.clone();
    let run = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await });
    let valid = async {
        while standing(&engine, "backup").await.certificate.is_none() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_secs(300), valid).await.expect("it was never verified");
    let certificate = standing(&engine, "backup").await.certificate.unwrap();
    assert!(certificate.detail.contains("\"verified_by\":\"schedule\""), "{}", certificate.detail);
    assert!(standing(&engine, "main").await.certificate.is_none(), "the first needs none");
    assert!(!is_due(&engine.inner, &standing(&engine, "backup").await), "not again before a day has passed");
    drop(stop);
    run.await.unwrap();
}

#[tokio::test]
async fn what_is_due_is_what_is_old_or_was_never_verified_as_it_is_now() {
    let engine = engine(", verify_every = \"1d\"", "{ output = \"x\" }").await;
    assert!(is_due(&engine.inner, &standing(&engine, "backup").await));
    assert!(!is_due(&engine.inner, &standing(&engine, "main").await));
    engine.verify("t", "backup", AskedBy::Request).await.unwrap();
    let mut now = standing(&engine, "backup").await;
    assert!(!is_due(&engine.inner, &now));
    let last = now.checked.as_mut().unwrap().last.as_mut().unwrap();
    last.ended_at -= 24 * 3600 * 1000;
    assert!(is_due(&engine.inner, &now));
    let last = now.checked.as_mut().unwrap().last.as_mut().unwrap();
    (last.ended_at, last.contract_digest) = (engine.now(), [7; 32]);
    assert!(is_due(&engine.inner, &now), "the contract is another one now");
    let never = self::engine("", "{ output = \"x\" }").await;
    assert!(!is_due(&never.inner, &standing(&never, "backup").await), "nobody asked for it");
}

#[tokio::test(start_paused = true)]
async fn a_verification_waits_while_jobs_wait_for_a_slot() {
    let engine = engine("", "{ output = \"x\" }").await;
    let calls = calls(&engine);
    calls.lane.keep_backlog();
    assert!(timeout(Duration::from_secs(60), calls.slot()).await.is_err());
    calls.lane.clear_backlog();
    assert!(timeout(Duration::from_secs(1), calls.slot()).await.unwrap().is_ok());
    calls.lane.keep_backlog();
    let why = calls.slot().await.err().unwrap();
    assert!(why.contains("no slot of the provider was free"), "{why}");
}

#[tokio::test]
async fn a_run_that_could_not_be_told_takes_nothing_back() {
    let engine = engine("", "{ then = { after = 0, do = { status = 429 } } }").await;
    let Verified::Done(report, certificate) = engine.verify("t", "backup", AskedBy::Request).await.unwrap() else {
        panic!("not run")
    };
    assert_eq!((report.verdict(), certificate), (Verdict::Undecided, None));
    assert_eq!(report.figures.calls, 1, "tries again are the caller's own");
    let now = standing(&engine, "backup").await;
    assert!(now.checked.is_none_or(|checked| checked.last.is_none() && checked.running.is_none()));
}

#[tokio::test]
async fn a_failure_is_recorded_and_takes_back_what_there_was() {
    let engine = engine("", "{ output = \"y\" }").await;
    let Verified::Done(report, None) = engine.verify("t", "backup", AskedBy::Request).await.unwrap() else {
        panic!("it passed")
    };
    assert_eq!(report.verdict(), Verdict::Failed);
    let last = standing(&engine, "backup").await.checked.unwrap().last.unwrap();
    assert!(!last.passed && last.report.contains("output == 'x'"), "{}", last.report);
}

#[test]
fn only_what_was_refused_or_not_sent_is_asked_again_and_not_for_long() {
    let broken = |meaning, retry_after_ms| Came::Answered {
        answer: Answer::Broken {
            meaning,
            status: None,
            retry_after_ms,
            message: "".into(),
            seen: Seen::default(),
            breach: None,
        },
        took: Duration::ZERO,
    };
    let refused = Meaning::Failed(FailureClass::Refused);
    assert_eq!(pause_after(&broken(refused, Some(3000)), 0), Some(Duration::from_secs(3)));
    assert_eq!(pause_after(&broken(refused, Some(3_000_000)), 0), None, "somebody waits for the report");
    assert_eq!(pause_after(&broken(refused, None), TRIES_AGAIN), None);
    assert!(pause_after(&broken(Meaning::Failed(FailureClass::NotSent), None), 1).is_some());
    assert_eq!(pause_after(&broken(Meaning::Failed(FailureClass::Invalid), None), 0), None);
    assert_eq!(pause_after(&Came::Silent, 0), None);
    let good = Answer::Done { output: json!(1), seen: Seen::default() };
    assert_eq!(pause_after(&Came::Answered { answer: good, took: Duration::ZERO }, 0), None);
}

#[tokio::test]
async fn a_server_that_is_away_with_its_tokenizer_takes_no_certificate_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let engine = chat_engine(listener.local_addr().unwrap()).await;
    certify(&engine, "backup").await;
    drop(listener);
    let Verified::Done(report, None) = engine.verify("t", "backup", AskedBy::Schedule).await.unwrap() else {
        panic!("it passed")
    };
    assert_eq!(report.verdict(), Verdict::Undecided, "{report:?}");
    assert!(standing(&engine, "backup").await.certificate.unwrap().suspended.is_none());
}

#[tokio::test]
async fn a_tokenizer_that_hangs_does_not_hold_up_a_stop() {
    // It takes connections and never says a word.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let engine = chat_engine(listener.local_addr().unwrap()).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = engine.clone();
    let run = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await });
    let asking = engine.clone();
    let asked = tokio::spawn(async move { asking.verify("t", "backup", AskedBy::Request).await });
    let task: Text = "t".into();
    while engine.inner.verifying.progress(&task, &"backup".into()).is_none() {
        tokio::task::yield_now().await;
    }
    drop(stop);
    timeout(Duration::from_secs(10), run).await.expect("the tokenizer holds up the stop").unwrap();
    match asked.await.unwrap().unwrap() {
        Verified::Stopping => {}
        Verified::Done(report, None) => assert_eq!(report.verdict(), Verdict::Undecided, "{report:?}"),
        other => panic!("{other:?}"),
    }
}
