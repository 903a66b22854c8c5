//! The picture, without a server.

use std::time::Duration;

use super::super::job::JobView;
use super::super::screen::{Screen, Tone};
use super::report::{Claim, Report, Shown};
use super::scene::{COLUMNS, Scene};

fn screen() -> Screen {
    Screen::of_writers(Box::new(std::io::sink()), Box::new(std::io::sink()))
}

fn job(attempts: &str) -> JobView {
    let text =
        format!(r#"{{"id":"job_1","owner":"u","idempotency_key":"k","state":"running","attempts":[{attempts}]}}"#);
    serde_json::from_str(&text).unwrap()
}

fn attempt(number: u32, provider: &str, state: &str, more: &str) -> String {
    format!(r#"{{"id":"att_{number}","number":{number},"provider":"{provider}","state":"{state}"{more}}}"#)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_timeline_shows_clicks_attempts_and_executions() {
    let mut scene = Scene::new(ms(4400));
    for at in [0, 10, 20, 1800] {
        scene.click(ms(at));
    }
    scene.count(ms(100), 1);
    scene.see(ms(0), &job(&attempt(1, "main", "starting", "")));
    scene.see(ms(1000), &job(&attempt(1, "main", "unknown", r#","cause":"timeout""#)));
    let half = scene.timeline(ms(2200), &screen()).join("\n");
    let second = attempt(2, "backup", "running", "");
    let first = attempt(1, "main", "succeeded", r#","resolution":{"by":"late_answer"}"#);
    scene.see(ms(4000), &job(&format!("{first},{second}")));
    scene.count(ms(4000), 2);
    let whole = scene.timeline(ms(4400), &screen()).join("\n");
    insta::assert_snapshot!(format!("{half}\n\n{whole}"), @r"
    clicks      3                 ▼                           4 clicks
    main #1     ──────────╍╍╍╍╍╍╍╍╍╍╍╍▸                       unknown: timeout
    ledger       ■                                            1 execution

    clicks      3                 ▼                           4 clicks
    main #1     ──────────╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍╍●     done: late answer
    backup #2                                           ━━━▸  running
    ledger       ■                                      ■     2 executions
    ");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut scene = Scene::new(ms(1000));
    let long = "a-provider-with-a-name-that-does-not-end";
    scene.see(ms(0), &job(&attempt(1, long, "running", "")));
    scene.see(ms(500), &job(&attempt(1, long, "superseded", r#","resolution":{"by":"late_answer"}"#)));
    for at in 0..40 {
        scene.click(ms(at * 40));
    }
    scene.tell(ms(9000), Tone::Doubt, &"a long story ".repeat(9));
    for line in scene.timeline(ms(9000), &screen()).into_iter().chain(scene.events(&screen())) {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
}

#[test]
fn events_carry_their_moment() {
    let mut scene = Scene::new(ms(1000));
    scene.tell(ms(1260), Tone::Good, "it comes");
    assert_eq!(scene.events(&screen()), ["     1.3 s  it comes"]);
}

#[test]
fn one_claim_that_does_not_hold_is_enough() {
    let claim = |holds: bool| Claim { claim: "c".into(), holds, seen: (!holds).then(|| "2".to_owned()) };
    let shown = |claims| Shown { play: "p", clicks: 1, executions: 1, otherwise: "2", claims };
    assert!(Report::new(vec![shown(vec![claim(true)])]).ok);
    assert!(!Report::new(vec![shown(vec![claim(true)]), shown(vec![claim(true), claim(false)])]).ok);
    assert_eq!(claim(false).line(&screen()), "   ✗ c\n     seen: 2");
}

#[test]
fn an_open_attempt_is_out_of_sight_while_no_server_answers() {
    let mut scene = Scene::new(ms(1000));
    scene.see(ms(0), &job(&attempt(1, "main", "starting", "")));
    scene.lose_sight(ms(500));
    let line = &scene.timeline(ms(900), &screen())[1];
    assert!(line.contains("─┈") && line.contains("┈▸") && line.ends_with("  no server"), "{line}");
    scene.see(ms(950), &job(&attempt(1, "main", "failed", "")));
    scene.lose_sight(ms(960));
    assert!(scene.timeline(ms(1000), &screen())[1].ends_with("failed"), "what has ended stays ended");
}
