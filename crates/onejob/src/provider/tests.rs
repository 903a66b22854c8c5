use std::time::Duration;

use onejob_core::{AttemptId, Cause, FailureClass, JobId, Meaning, Phase, Seen, Usage};
use serde_json::{Value, json};

use super::simulated::SimulatedProvider;
use super::{Answer, CallInput, Prepared, Progress, Provider};
use crate::config::{ProviderConfig, ProviderKind, SimulatedDefinition};
use crate::template::Template;

fn simulated() -> SimulatedProvider {
    SimulatedProvider::open("demo", &SimulatedDefinition { behaviour: None }).unwrap()
}

fn call(job: u128, input: Value) -> CallInput {
    CallInput {
        job: JobId(job),
        owner: "user_1".into(),
        task: "plain".into(),
        attempt: AttemptId(7),
        number: 1,
        input,
        chat: None,
        callback_url: String::new(),
    }
}

async fn ask(provider: &SimulatedProvider, behaviour: Value) -> (Answer, Phase) {
    let progress = Progress::new();
    let prepared = provider.prepare(&call(1, json!({"simulate": behaviour}))).unwrap();
    (provider.send(prepared, &progress).await, progress.phase())
}

async fn meaning(provider: &SimulatedProvider, behaviour: Value) -> (Meaning, Phase) {
    match ask(provider, behaviour).await {
        (Answer::Broken { meaning, .. }, phase) => (meaning, phase),
        (answer, _) => panic!("not broken but {answer:?}"),
    }
}

#[test]
fn progress_never_goes_back() {
    let progress = Progress::new();
    assert_eq!(progress.phase(), Phase::BeforeConnect);
    let clone = progress.clone();
    for (advance, phase) in [
        (Phase::Sending, Phase::Sending),
        (Phase::BeforeConnect, Phase::Sending),
        (Phase::InBody, Phase::InBody),
        (Phase::AwaitingHeaders, Phase::InBody),
    ] {
        clone.advance(advance);
        assert_eq!(progress.phase(), phase);
    }
}

#[tokio::test]
async fn without_a_word_the_simulated_provider_gives_a_good_answer() {
    let provider = simulated();
    for input in [json!({}), json!({"simulate": null}), json!({"simulate": {}})] {
        let prepared = provider.prepare(&call(1, input)).unwrap();
        let answer = provider.send(prepared, &Progress::new()).await;
        assert_eq!(answer, Answer::Done { output: json!({"ok": true}), seen: Seen::default() });
    }
    assert_eq!((provider.executions(JobId(1)), provider.executions(JobId(2)), provider.total_executions()), (3, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_is_what_was_told() {
    let provider = simulated();
    let began = tokio::time::Instant::now();
    let told = json!({"delay_ms": 4000, "output": [1], "model": "m-1", "usage": {"input_tokens": 5}});
    let seen = Seen { model: Some("m-1".into()), usage: Some(Usage { input_tokens: Some(5), output_tokens: None }) };
    assert_eq!(ask(&provider, told).await, (Answer::Done { output: json!([1]), seen }, Phase::InBody));
    assert_eq!(began.elapsed(), Duration::from_secs(4));
}

#[tokio::test]
async fn every_kind_of_failure_has_its_meaning_phase_and_place_in_the_ledger() {
    let table = [
        (json!({"not_sent": true}), Meaning::Failed(FailureClass::NotSent), Phase::BeforeConnect, 0),
        (json!({"status": 429, "retry_after_s": 1}), Meaning::Failed(FailureClass::Refused), Phase::InBody, 0),
        (json!({"status": 503, "retry_after_s": 1}), Meaning::Failed(FailureClass::Refused), Phase::InBody, 0),
        (json!({"status": 503}), Meaning::Unknown(Cause::Status), Phase::InBody, 1),
        (json!({"status": 400}), Meaning::Failed(FailureClass::Invalid), Phase::InBody, 0),
        (json!({"status": 500}), Meaning::Unknown(Cause::Status), Phase::InBody, 1),
        (json!({"fail": "no GPU"}), Meaning::Failed(FailureClass::FailedThere), Phase::InBody, 1),
        (json!({"lose_connection": true}), Meaning::Unknown(Cause::ConnectionLost), Phase::AwaitingHeaders, 1),
        (json!({"cut_short": true}), Meaning::Unknown(Cause::CutShort), Phase::InBody, 1),
    ];
    for (told, expected, phase, executions) in table {
        let provider = simulated();
        assert_eq!(meaning(&provider, told.clone()).await, (expected, phase), "{told}");
        assert_eq!(provider.executions(JobId(1)), executions, "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_has_begun_and_never_ends() {
    let provider = simulated();
    let progress = Progress::new();
    let prepared = provider.prepare(&call(1, json!({"simulate": {"hang": true, "delay_ms": 5}}))).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(86_400), provider.send(prepared, &progress)).await.is_err());
    assert_eq!((progress.phase(), provider.executions(JobId(1))), (Phase::AwaitingHeaders, 1));
}

#[tokio::test]
async fn it_can_behave_differently_from_a_later_call_on() {
    let provider = simulated();
    let told = json!({"not_sent": true, "then": {"after": 1, "do": {"status": 429, "then": {"after": 3, "do": {}}}}});
    assert_eq!(meaning(&provider, told.clone()).await.0, Meaning::Failed(FailureClass::NotSent));
    for _ in 0..2 {
        assert_eq!(meaning(&provider, told.clone()).await.0, Meaning::Failed(FailureClass::Refused));
    }
    assert!(matches!(ask(&provider, told).await.0, Answer::Done { .. }));
    assert_eq!(provider.executions(JobId(1)), 1);
}

#[test]
fn what_is_not_understood_is_invalid_and_named() {
    for (told, reason) in [
        (json!({"delay": 1}), "behaviour: the member \"delay\" is not known"),
        (json!({"delay_ms": -1}), "behaviour.delay_ms: expected a whole number from 0 to 86400000"),
        (json!({"status": 200}), "behaviour.status: expected a status from 300 to 599"),
        (json!({"hang": 1}), "behaviour.hang: expected true or false"),
        (json!({"fail": true}), "behaviour.fail: expected a string"),
        (json!({"hang": true, "fail": "x"}), "behaviour: expected at most one of status"),
        (json!({"then": {"after": 1}}), "behaviour.then: expected"),
        (json!({"then": {"after": 1, "do": {"delya_ms": 1}}}), "behaviour: the member \"delya_ms\""),
        (json!({"usage": {"tokens": 1}}), "behaviour.usage: expected"),
        (json!({"retry_after_s": "soon"}), "behaviour.retry_after_s: expected seconds"),
        (json!("slow"), "behaviour: expected an object"),
    ] {
        let failure = simulated().prepare(&call(1, json!({"simulate": told}))).unwrap_err();
        assert_eq!(failure.class, FailureClass::Invalid);
        assert!(failure.message.starts_with(reason), "{told}: {}", failure.message);
    }
}

#[tokio::test]
async fn a_definition_may_say_itself_how_the_provider_behaves() {
    let behaviour =
        Template::compile(&json!({"output": "{{ input.text | upper }}", "delay_ms": "{{ input.delay }}"})).unwrap();
    let kind = ProviderKind::Simulated(SimulatedDefinition { behaviour: Some(behaviour) });
    let provider =
        Provider::open(&ProviderConfig { name: "demo".into(), concurrency: 1, kind, digest: [0; 32] }).unwrap();
    let prepared = provider.prepare(&call(3, json!({"text": "hi"}))).unwrap();
    assert!(matches!(prepared, Prepared::Simulated(_)));
    let answer = provider.send(prepared, &Progress::new()).await;
    assert_eq!(answer, Answer::Done { output: json!("HI"), seen: Seen::default() });
    assert_eq!(provider.as_simulated().unwrap().executions(JobId(3)), 1);
}

#[test]
fn a_worker_provider_is_sent_nothing() {
    let kind = ProviderKind::Worker;
    let provider =
        Provider::open(&ProviderConfig { name: "team".into(), concurrency: 1, kind, digest: [0; 32] }).unwrap();
    assert!(provider.prepare(&call(1, json!({}))).is_err_and(|failure| failure.class == FailureClass::Invalid));
    assert!(provider.as_simulated().is_none());
}
