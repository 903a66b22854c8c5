use std::future::pending;
use std::time::{Duration, SystemTime};

use onejob_core::{AttemptStateName, JobState, Verdict};
use serde_json::{Map, Value, json};

use super::{CallError, JobRequest, Onejob};
use crate::config::Config;
use crate::engine::{ByHand, Invalid, Refusal, Resolved, Word};
use crate::id;
use crate::intent::KeyError;
use crate::store::{Applied, Submitted};

const LIMIT: Duration = Duration::from_secs(30);

fn config(store: &str) -> Config {
    let text = format!(
        r#"
[server]
store = "{store}"
max_body_bytes = 4096
[providers.main]
kind = "simulated"
behaviour = {{ output = {{ echo = "{{{{ input.text }}}}" }} }}
[providers.silent]
kind = "simulated"
behaviour = {{ hang = true }}
[tasks.plain]
providers = ["main"]
[tasks.silent]
providers = ["silent"]
attempt_timeout = "50ms"
linger = "1m"
"#
    );
    Config::from_text(&text).unwrap()
}

async fn open() -> Onejob {
    Onejob::open(config("memory:")).await.unwrap()
}

fn request(key: &str) -> JobRequest {
    JobRequest::new("ann", key, "plain", json!({"text": "hi"}))
}

async fn refused(onejob: &Onejob, request: JobRequest) -> Invalid {
    match onejob.submit(request).await {
        Err(CallError::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_same_key_is_one_job_and_another_intent_under_it_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("sqlite:{}", folder.path().join("jobs.db").display());
    for place in ["memory:", &*place] {
        let onejob = Onejob::open(config(place)).await.unwrap();
        let Submitted::New(made) = onejob.submit(request("k")).await.unwrap() else { panic!("it is new") };
        // Quoted, as a client's header may have it: one key.
        let Submitted::Same(same) = onejob.submit(request("\"k\"")).await.unwrap() else { panic!("it is there") };
        assert_eq!((same.job.id, same.duplicates), (made.job.id, 1));
        let other = JobRequest::new("ann", "k", "plain", json!({"text": "ho"}));
        assert!(matches!(onejob.submit(other).await, Ok(Submitted::OtherIntent(it)) if it.job.id == made.job.id));
        let done = onejob.wait(made.job.id, LIMIT).await.unwrap().unwrap();
        assert_eq!(done.result(), Some(json!({"echo": "hi"})), "{place}");
        assert_eq!(onejob.job_of_key("ann", "k").await.unwrap().unwrap().job.id, made.job.id);
        assert_eq!(onejob.job_of_key("bob", "k").await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_the_api_would_refuse_is_refused() {
    let onejob = open().await;
    let deep = (0..64).fold(json!(1), |inner, _| json!([inner]));
    let with = |input: Value| JobRequest::new("ann", "k", "plain", input);
    assert!(matches!(refused(&onejob, request("a b")).await, Invalid::Key(KeyError::Invalid(_))));
    assert!(matches!(refused(&onejob, with(json!("\0"))).await, Invalid::Json(_)));
    assert!(matches!(refused(&onejob, with(deep)).await, Invalid::Json(_)));
    assert_eq!(refused(&onejob, with(json!("x".repeat(5000)))).await, Invalid::TooLarge { limit: 4096 });
    let unknown = JobRequest::new("ann", "k", "other", json!(1));
    assert_eq!(refused(&onejob, unknown).await, Invalid::NoSuchTask("other".into()));
    for (wrong, name) in [
        (JobRequest::new("", "k", "plain", json!(1)), "owner"),
        (JobRequest::new("x".repeat(256), "k", "plain", json!(1)), "owner"),
        (request("k").priority(101), "priority"),
        (request("k").provider("silent"), "provider"),
        (request("k").run_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)), "run_at"),
    ] {
        assert!(matches!(refused(&onejob, wrong).await, Invalid::Member { name: it, .. } if it == name), "{name}");
    }
    let notes = Map::from_iter([("note".to_owned(), json!("\0"))]);
    assert!(matches!(refused(&onejob, request("k").metadata(notes)).await, Invalid::Json(_)));
    assert_eq!(onejob.job_of_key("ann", "k").await.unwrap(), None, "nothing was written");
}

#[tokio::test]
async fn an_unknown_attempt_ends_by_an_operators_word() {
    let onejob = open().await;
    let silent = JobRequest::new("ann", "k", "silent", json!({}));
    let Submitted::New(made) = onejob.submit(silent).await.unwrap() else { panic!("it is new") };
    let unknown = onejob.wait(made.job.id, LIMIT).await.unwrap().unwrap();
    assert_eq!(unknown.job.state(), JobState::Unknown);
    let attempt = unknown.job.attempts[0].id;
    assert!(matches!(
        onejob.start_attempt(made.job.id, None, false).await.unwrap(),
        ByHand::Not(Applied::Refused { .. })
    ));
    let silence = onejob.resolve(attempt, Word::Failed, "").await;
    assert!(matches!(silence, Err(CallError::Invalid(Invalid::Member { name: "reason", .. }))), "{silence:?}");
    let word = Word::Succeeded(json!({"id": 7}));
    let Resolved::Told(Applied::Done { record, verdict }) = onejob.resolve(attempt, word, "asked them").await.unwrap()
    else {
        panic!("it was open")
    };
    assert_eq!((verdict, record.result()), (Verdict::Won, Some(json!({"id": 7}))));
    assert_eq!(record.job.attempts[0].state.name(), AttemptStateName::Succeeded);
    let nobody = onejob.resolve(id::new_attempt_id(), Word::Failed, "why").await.unwrap();
    assert_eq!(nobody, Resolved::Told(Applied::NoSuchJob));
}

#[tokio::test]
async fn a_node_that_has_stopped_takes_nothing_more() {
    let onejob = open().await;
    tokio::time::timeout(LIMIT, onejob.run(async {})).await.unwrap();
    assert_eq!(onejob.submit(request("k")).await, Err(CallError::Refused(Refusal::Stopping)));
    let other = open().await;
    tokio::select! {
        () = other.run(pending()) => panic!("nobody has told it to stop"),
        end = other.submit(request("k")) => assert!(matches!(end, Ok(Submitted::New(_)))),
    }
}
