use std::time::Duration;

use onejob_core::{FailureClass, Meaning, Seen};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::calls::{TRIES_AGAIN, pause_after};
use super::schedule::{self, Misses};
use super::*;
use crate::config::Config;
use crate::contract::verify::Came;
use crate::provider::Answer;

/// A contract whose one case the simulated providers answer as `answer` says.
async fn engine(contract: &str, answer: &str) -> Engine {
    engine_of("", contract, answer).await
}

async fn engine_of(task: &str, contract: &str, answer: &str) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let cases = format!("[[case]]\nname = \"a\"\ninput = {{ simulate = {answer} }}\nexpect = [\"output == 'x'\"]\n");
    std::fs::write(folder.path().join("cases.toml"), cases).unwrap();
    let text = format!(
        "[server]\nstore = \"memory:\"\n[providers.main]\nkind = \"simulated\"\n[providers.backup]\nkind = \"simulated\"\n\
         [tasks.t]\nproviders = [\"main\", \"backup\"]\ncontract = {{ cases = \"cases.toml\", repeat = 1{contract} }}\n{task}"
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
    let config = &engine.inner.config;
    certify_as(engine, provider, config.contract_digest(&config.tasks["t"], &config.providers[provider])).await;
}

async fn certify_as(engine: &Engine, provider: &str, contract_digest: [u8; 32]) {
    let run = Run { id: id::new_verification_id(), task: "t".into(), provider: provider.into() };
    let (inner, now) = (&engine.inner, engine.now());
    assert_eq!(inner.begin(&run).await.unwrap(), Begun::Yes);
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

fn is_due(engine: &Engine, standing: &Standing) -> bool {
    let known: Vec<Checked> = standing.checked.iter().cloned().collect();
    schedule::is_due(&engine.inner, &standing.task, &standing.provider, &known)
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
    assert!(!is_due(&engine, &standing(&engine, "backup").await), "not again before a day has passed");
    drop(stop);
    run.await.unwrap();
}

#[tokio::test]
async fn what_is_due_is_what_is_old_or_was_never_verified_as_it_is_now() {
    let engine = engine(", verify_every = \"1d\"", "{ output = \"x\" }").await;
    assert!(is_due(&engine, &standing(&engine, "backup").await));
    assert!(!is_due(&engine, &standing(&engine, "main").await));
    engine.verify("t", "backup", AskedBy::Request).await.unwrap();
    let mut now = standing(&engine, "backup").await;
    assert!(!is_due(&engine, &now));
    let last = now.checked.as_mut().unwrap().last.as_mut().unwrap();
    last.ended_at -= 24 * 3600 * 1000;
    assert!(is_due(&engine, &now));
    let last = now.checked.as_mut().unwrap().last.as_mut().unwrap();
    (last.ended_at, last.contract_digest) = (engine.now(), [7; 32]);
    assert!(is_due(&engine, &now), "the contract is another one now");
    let never = self::engine("", "{ output = \"x\" }").await;
    assert!(!is_due(&never, &standing(&never, "backup").await), "nobody asked for it");
}

#[tokio::test(start_paused = true)]
async fn a_verification_waits_while_jobs_wait_for_a_slot() {
    let engine = engine("", "{ output = \"x\" }").await;
    let calls = calls(&engine);
    calls.lane.keep_backlog();
    assert!(timeout(Duration::from_secs(60), calls.slot()).await.is_err());
    calls.lane.claimed_all(0);
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

#[tokio::test(start_paused = true)]
async fn a_run_without_an_end_is_undecided_and_says_so() {
    let engine = engine_of("attempt_timeout = \"2h\"\n", "", "{ hang = true }").await;
    let ended = engine.verify("t", "backup", AskedBy::Request).await;
    let Ok(Verified::Done(report, None)) = &ended else { panic!("{ended:?}") };
    assert_eq!(report.verdict(), Verdict::Undecided);
    assert_eq!(report.rows[0].detail.as_deref(), Some("the verification came to no end within 30 minutes"));
    let once = Misses::default().after(&ended, 0);
    let twice = once.after(&ended, 0);
    assert!(once.not_before() > 0 && twice.not_before() > once.not_before());
}

#[tokio::test(start_paused = true)]
async fn only_what_told_nothing_makes_the_schedule_wait() {
    let passes = engine("", "{ output = \"x\" }").await.verify("t", "backup", AskedBy::Schedule).await;
    let refused = engine("", "{ status = 429 }").await.verify("t", "backup", AskedBy::Schedule).await;
    let missed = Misses::default().after(&refused, 1000);
    assert_eq!(missed.not_before(), 1000 + 600_000);
    assert_eq!(missed.after(&refused, 1000).not_before(), 1000 + 1_200_000);
    let many = (0..40).fold(missed, |missed, _| missed.after(&refused, 1000));
    assert_eq!(many.not_before(), 1000 + 86_400_000, "at least once a day");
    assert_eq!(missed.after(&passes, 2000), Misses::default());
    assert_eq!(missed.after(&Ok(Verified::InFlight { until: 5 }), 2000), missed, "another node's run");
}

#[tokio::test(start_paused = true)]
async fn nothing_looks_where_nothing_is_verified_by_itself() {
    let engine = engine("", "{ output = \"x\" }").await;
    timeout(Duration::from_secs(1), keep_verified(engine)).await.expect("it looks for nothing");
}

#[tokio::test]
async fn a_certificate_of_the_contract_as_it_is_now_is_shown_however_old_it_is() {
    let engine = engine("", "{ output = \"x\" }").await;
    let now =
        engine.inner.config.contract_digest(&engine.inner.config.tasks["t"], &engine.inner.config.providers["backup"]);
    for digest in [[1; 32], now, [2; 32], [3; 32], [4; 32]] {
        certify_as(&engine, "backup", digest).await;
    }
    let shown = standing(&engine, "backup").await;
    assert_eq!((shown.is_current, shown.certificate.unwrap().contract_digest), (true, now));
    certify_as(&engine, "main", [5; 32]).await;
    let shown = standing(&engine, "main").await;
    assert_eq!((shown.is_current, shown.certificate.unwrap().contract_digest), (false, [5; 32]));
}
