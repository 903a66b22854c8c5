//! `onejob demo` itself: every claim holds, and what people read is this.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::world::PATIENCE;

fn demo(arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onejob"));
    let output = command.arg("demo").args(arguments).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the demo leaves nothing behind");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The picture without what differs from run to run: moments, the lines themselves, the process.
fn redacted(line: &str) -> String {
    for label in ["   clicks ", "   main #", "   backup #", "   ledger "] {
        if line.starts_with(label) && !line.contains("executions  ") {
            let mut words: Vec<&str> = line.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
            let status = words.pop().unwrap_or_default();
            return format!("   {:<12}…  {status}", words.first().copied().unwrap_or_default());
        }
    }
    if let Some((moment, event)) = line.split_once(" s  ").filter(|(moment, _)| moment.trim().parse::<f64>().is_ok()) {
        let event = event.split_once("kill -9 ").map_or(event.to_owned(), |(_, rest)| {
            format!("kill -9 …{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        });
        return format!("{}t s  {event}", " ".repeat(moment.len() - 1));
    }
    if line.starts_with(" server ") {
        return " server    …".to_owned();
    }
    line.split_once(" claims held, in ").map_or(line.to_owned(), |(claims, _)| format!("{claims} claims held, in …"))
}

#[test]
fn the_demo_keeps_every_promise_that_it_makes() {
    let (code, out, err) = demo(&["--fast"]);
    assert_eq!(code, Some(0), "{out}\n{err}");
    assert_eq!(err, "");
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "wider than a terminal: {line}");
        assert!(!line.ends_with('…'), "cut: {line}");
    }
    insta::assert_snapshot!(out.lines().map(redacted).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_demo_tells_programs_what_held() {
    let (code, out, err) = demo(&["--fast", "--json"]);
    assert_eq!(code, Some(0), "{out}\n{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["ok"], true);
    let executions: Vec<u64> =
        report["plays"].as_array().unwrap().iter().map(|play| play["executions"].as_u64().unwrap()).collect();
    assert_eq!(executions, [1, 1, 1, 2, 1], "the race alone was asked for twice");
}

#[test]
fn a_demo_that_is_killed_takes_its_server_and_its_folder_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onejob"));
    let command = command.arg("demo").env("TMPDIR", folder.path()).stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let server = lines.find(|line| line.starts_with(" server ")).unwrap();
    let address = server.split("http://").nth(1).unwrap().split(',').next().unwrap().to_owned();
    TcpStream::connect(&address).unwrap();
    demo.kill().unwrap();
    demo.wait().unwrap();
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(&address).is_ok() || std::fs::read_dir(folder.path()).unwrap().count() > 0 {
        assert!(Instant::now() < end, "the server at {address} outlives its demo");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
