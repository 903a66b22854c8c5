//! The plays. Each tells one way in which work is done twice today, and shows that it is done once.
//!
//! Nothing here depends on how fast the machine is: a play goes on when what it waits for has been
//! seen, and the provider ends its work when the play lets it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::Stop;
use super::super::client::{Answer, Client, Send};
use super::super::job::{self, JobView};
use super::super::problem::Problem;
use super::super::screen::{Screen, Tone};
use super::node::Node;
use super::provider::Provider;
use super::report::Shown;
use super::stage::{Show, Stage, Wish};

type Hands<'a> = (&'a mut Node, &'a Provider, &'a mut Screen);

/// A play.
type Play = fn(Hands<'_>, Show) -> Result<Shown, Stop>;

/// All plays, in their order.
pub(super) const ALL: [Play; 5] = [double_click, other_input, timeout, reversed_race, crash];

fn double_click(hands: Hands<'_>, show: Show) -> Result<Shown, Stop> {
    let wish = Wish { key: "click-8f3a", task: "summarize", input: r#"{"text": "a long note"}"# };
    let about = "Five clicks at once, one more after ten seconds of silence, and one the next day: one wish, one key, \
                 one job. (Time runs faster here.)";
    let mut stage = Stage::open(hands, show, (" 1  Double click", about), (wish.key, 3.2))?;
    let mut pending: Vec<_> = (0..5).map(|_| stage.click(wish)).collect();
    stage.tell(Tone::Strong, "five posts at once, all with the key click-8f3a")?;
    stage.play_until("an attempt", |job| !job.attempts.is_empty())?;
    stage.play_to(1.3)?;
    pending.push(stage.click(wish));
    stage.tell(Tone::Strong, "silence, so the user clicks again")?;
    stage.play_until("the sixth click", |job| job.duplicates >= 5)?;
    stage.play_to(2.4)?;
    stage.provider.release("main");
    let ended = stage.play_until("the result", |job| job.state == "succeeded")?;
    stage.tell(Tone::Good, "the answer: every click that waited gets it")?;
    let mut answers = stage.answers(pending)?;
    stage.play_to(3.0)?;
    answers.push(stage.glance(wish)?);
    stage.tell(Tone::Strong, "one more click: the finished job, nothing runs")?;

    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let found = answers.iter().filter(|answer| answer.status == 200 && answer.replayed).count();
    let jobs = answers.iter().map(JobView::of).collect::<Result<Vec<_>, _>>()?;
    stage.claim("one post made the job, six found it", (made, found) == (1, 6), (made, found));
    let results: Vec<&str> = jobs.iter().map(result).collect();
    let same = jobs.iter().all(|job| job.id == ended.id && result(job) == result(&ended)) && ended.result.is_some();
    stage.claim("all seven clicks got the same job and the same result", same, &results);
    once(&mut stage);
    stage.close("double click", "7: one per click")
}

fn other_input(hands: Hands<'_>, show: Show) -> Result<Shown, Stop> {
    let wish = Wish { key: "click-77b0", task: "summarize", input: r#"{"text": "page one", "copies": 1}"# };
    let same = Wish { input: r#"{ "copies": 1.0,   "text": "page one" }"#, ..wish };
    let other = Wish { input: r#"{"text": "page two", "copies": 1}"#, ..wish };
    let about = "A key that comes again with another input is another wish: refused, at any time, and never answered \
                 with the first one's result.";
    let mut stage = Stage::open(hands, show, (" 2  Same key, other input", about), (wish.key, 2.2))?;
    let first = stage.glance(wish)?;
    stage.tell(Tone::Strong, r#"post {"text": "page one", "copies": 1}"#)?;
    stage.play_until("an attempt", |job| !job.attempts.is_empty())?;
    stage.play_to(0.7)?;
    let refused = Problem::of(stage.glance(other)?);
    stage.tell(Tone::Doubt, &format!("\"page two\" under that key: {}", refused.brief()))?;
    stage.play_to(1.3)?;
    let written = stage.glance(same)?;
    stage.tell(Tone::Strong, r#"post {"copies": 1.0, "text": "page one"}: the same job"#)?;
    stage.play_to(1.8)?;
    stage.provider.release("main");
    stage.play_until("the result", |job| job.state == "succeeded")?;
    let late = Problem::of(stage.glance(other)?);
    stage.tell(Tone::Doubt, &format!("done; \"page two\" again: {}", late.brief()))?;

    let conflict =
        |problem: &Problem| problem.name() == "idempotency-conflict" && problem.brief().contains("/input/text");
    let both = conflict(&refused) && conflict(&late);
    let seen = (refused.brief(), late.brief());
    stage.claim("another input is refused while it runs and after, and told where it differs", both, seen);
    let found = JobView::of(&written)?.id == JobView::of(&first)?.id && written.replayed;
    stage.claim("the same input in another order and another writing is the same wish", found, written.status);
    once(&mut stage);
    stage.close("same key, other input", "2, or the wrong result replayed")
}

fn timeout(hands: Hands<'_>, show: Show) -> Result<Shown, Stop> {
    let wish = Wish { key: "poster-19", task: "poster", input: r#"{"text": "a lighthouse"}"# };
    let about = "The provider needs 4 s, the task waits 1 s. Silence is not failure: the work may be going on, so \
                 nothing else starts until evidence comes.";
    let mut stage = Stage::open(hands, show, (" 3  Timeout", about), (wish.key, 4.4))?;
    let first = vec![stage.click(wish)];
    stage.tell(Tone::Strong, "post, and wait")?;
    stage.play_until("unknown", |job| job.state == "unknown")?;
    stage.tell(Tone::Doubt, "no answer in time: unknown. It may be done, or not")?;
    let told = stage.answers(first)?;
    stage.play_to(1.8)?;
    let again = stage.glance(wish)?;
    stage.tell(Tone::Strong, "the user clicks again: the same job, nothing starts")?;
    stage.play_to(2.6)?;
    let refused = Problem::of(stage.start_by_hand("backup")?);
    stage.tell(Tone::Doubt, &format!("the user clicks on the fallback, with force: {}", refused.brief()))?;
    stage.play_to(4.0)?;
    stage.provider.release("main");
    let ended = stage.play_until("the late answer", |job| job.state == "succeeded")?;
    stage.tell(Tone::Good, "the late answer comes, and is the result")?;

    let states =
        told.iter().chain([&again]).map(|a| JobView::of(a).map(|job| job.state)).collect::<Result<Vec<_>, _>>()?;
    stage.claim("both clicks are told “unknown”, not an error", states == ["unknown", "unknown"], &states);
    let blocked = refused.name() == "attempt-in-flight";
    stage.claim("a second attempt is refused, even with force", blocked, refused.brief());
    let by = stage.attempt(1).and_then(|attempt| attempt.resolution.as_ref()).map(|r| r.by.clone());
    let late = by.as_deref() == Some("late_answer") && result(&ended).contains("main");
    stage.claim("the late answer is the result", late, (by, result(&ended)));
    once(&mut stage);
    stage.close("timeout", "2 to 4 *")
}

fn reversed_race(hands: Hands<'_>, show: Show) -> Result<Shown, Stop> {
    let wish = Wish { key: "menu-4", task: "translate", input: r#"{"text": "the menu"}"# };
    let about = "A task that is declared harmless to run twice. The slow primary runs, the user takes the quick \
                 fallback: whoever answers first wins, for good.";
    let mut stage = Stage::open(hands, show, (" 4  Reversed race", about), (wish.key, 3.6))?;
    stage.glance(wish)?;
    stage.tell(Tone::Strong, "post; the primary takes its time")?;
    stage.play_until("a running attempt", |job| job.attempts.iter().any(|attempt| attempt.state == "running"))?;
    stage.play_to(1.4)?;
    let by_hand = stage.start_by_hand("backup")?;
    stage.tell(Tone::Strong, "the user clicks on the fallback: a second attempt, wanted")?;
    stage.play_until("the second attempt", |job| job.attempts.len() == 2)?;
    stage.play_to(2.2)?;
    stage.provider.release("backup");
    let won = stage.play_until("the winner", |job| job.state == "succeeded")?;
    stage.tell(Tone::Good, "backup answers first, and wins")?;
    stage.play_to(3.2)?;
    stage.provider.release("main");
    let ended = stage.play_until("the loser", |job| job.attempts.iter().all(|a| a.finished_at.is_some()))?;
    stage.tell(Tone::Doubt, "main answers second: dropped, and noted")?;

    stage.claim("a fallback may start beside a running attempt here", by_hand.status == 201, by_hand.status);
    let kept = result(&ended).contains("backup") && result(&ended) == result(&won);
    stage.claim("the result is the first answer, and the second did not touch it", kept, result(&ended));
    let loser = stage.attempt(1).map(|attempt| attempt.state.clone());
    stage.claim("the primary came second and is superseded", loser.as_deref() == Some("superseded"), loser);
    let notices = notices(&stage.node.client, &ended.id)?;
    let noted = notices.iter().any(|kind| kind == "duplicate_effect");
    stage.claim("the dropped result is on record: somebody may owe a refund", noted, &notices);
    let executions = stage.executions();
    stage.claim("two executions, both of them asked for", executions == 2, executions);
    stage.close("reversed race", "2, the last answer stands")
}

fn crash(hands: Hands<'_>, show: Show) -> Result<Shown, Stop> {
    let wish = Wish { key: "order-1001", task: "charge", input: r#"{"amount": "19.90", "currency": "EUR"}"# };
    let about = "The server is killed in the middle of a payment and started again on the same file.";
    let mut stage = Stage::open(hands, show, (" 5  Crash", about), (wish.key, 3.8))?;
    let first = JobView::of(&stage.glance(wish)?.or_refused()?)?;
    stage.tell(Tone::Strong, "post: acknowledged, so it is on the disk")?;
    stage.play_to(0.9)?;
    await_execution(&mut stage)?;
    let pid = stage.node.pid().unwrap_or_default();
    stage.node.kill();
    stage.tell(Tone::Bad, &format!("kill -9 {pid}: the server is gone, the payment is not"))?;
    stage.play_to(1.6)?;
    stage.provider.release("main");
    stage.tell(Tone::Doubt, "the provider finishes; nobody is there to hear it")?;
    stage.play_to(2.2)?;
    stage.node.run()?;
    let back = stage.play_until("unknown", |job| job.state == "unknown")?;
    stage.tell(Tone::Doubt, "started again: the job is there, its attempt is unknown")?;
    stage.play_to(2.9)?;
    let again = stage.glance(wish)?;
    stage.tell(Tone::Strong, "the user clicks again: the same job, nothing starts")?;
    stage.play_to(3.5)?;
    let resolved = resolve_from_ledger(&stage)?;
    let ended = stage.play_until("the end", |job| job.state == "succeeded")?;
    stage.tell(Tone::Good, "an operator finds it in the provider's books and says so")?;

    let survived = back.id == first.id && JobView::of(&again)?.id == first.id && again.replayed;
    stage.claim("the acknowledged job survived", survived, (&first.id, &back.id));
    let cause = back.attempts.first().and_then(|attempt| attempt.cause.clone());
    stage.claim("its attempt is unknown (the node died), not failed", cause.as_deref() == Some("node_died"), cause);
    let by = ended.attempts.first().and_then(|attempt| attempt.resolution.as_ref()).map(|r| r.by.clone());
    let ours = resolved.status == 200 && by.as_deref() == Some("operator") && result(&ended).contains("main");
    stage.claim("what the operator found is the result, and the reason is kept", ours, (resolved.status, by));
    once(&mut stage);
    stage.close("crash (kill -9)", "2: delivered again")
}

/// The claim of every play but one.
fn once(stage: &mut Stage<'_>) {
    let executions = stage.executions();
    stage.claim("the provider worked once, says its own ledger", executions == 1, executions);
}

/// A payment that has not reached the provider yet cannot be lost there.
fn await_execution(stage: &mut Stage<'_>) -> Result<(), Stop> {
    stage.play_until("an attempt", |job| !job.attempts.is_empty())?;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while stage.executions() == 0 && std::time::Instant::now() < end {
        stage.play_until("the provider", |_| true)?;
    }
    Ok(())
}

/// What an operator does: looks for the attempt in the provider's books, and says what is there.
fn resolve_from_ledger(stage: &Stage<'_>) -> Result<Answer, Stop> {
    let execution = stage.first_execution();
    let output = execution.as_ref().and_then(|execution| execution.output.clone()).unwrap_or_default();
    let (attempt, provider) = execution.map(|execution| (execution.attempt, execution.provider)).unwrap_or_default();
    let reason = format!("{provider}'s books show that {attempt} is done");
    let word = serde_json::json!({ "outcome": "succeeded", "reason": reason, "result": output });
    stage.post(&["v1", "attempts", &attempt, "resolve"], &word.to_string(), &[])
}

fn notices(client: &Client, job: &str) -> Result<Vec<String>, Stop> {
    #[derive(Deserialize)]
    struct List {
        notices: Vec<Notice>,
    }
    #[derive(Deserialize)]
    struct Notice {
        kind: String,
    }
    let answer = client.ask(&["v1", "jobs", job, "notices"], Send::Get(&[]), std::time::Duration::ZERO)?;
    Ok(job::read::<List>(&answer)?.notices.into_iter().map(|notice| notice.kind).collect())
}

fn result(job: &JobView) -> &str {
    job.result.as_deref().map_or("", RawValue::get)
}
