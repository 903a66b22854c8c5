//! `onejob verify`: runs contracts against providers, and shows what each was found to do.

use std::thread;
use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, Color};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Stop;
use super::client::{Answer, Client, NoAnswer, Send, ServerArgs};
use super::contracts::{ContractView, contracts};
use super::exit::{self, Exit};
use super::job::read;
use super::screen::{Screen, Tone, clock, safe, short, wrap};

const EXAMPLES: &str = "\
Examples:
  onejob verify                                every contract at every provider of its task
  onejob verify summarize backup               one of them
  onejob verify summarize --json | jq '.reports[].checks[] | select(.failed > 0)'
";

/// How long a run may take: the server ends it by itself before that.
const LONGEST: Duration = Duration::from_secs(31 * 60);

/// Between two looks at how far a run is.
const LOOK: Duration = Duration::from_millis(400);

/// The checks in the order in which they are shown.
const CHECKS: [&str; 5] = ["renders", "system prompt", "structure", "rules", "round trip"];

/// How much of a failing output is shown, in characters.
const QUOTE: usize = 160;

/// Characters of the bar.
const BAR: usize = 30;

/// Run a task's contract against its providers; a pass lets jobs fail over there
///
/// It makes real calls, by the path that every attempt takes: cases, repeated as the contract says, in every output mode,
/// and a few probes. Exits 0 if all passed and 1 if not.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct VerifyArgs {
    /// Of this task; without one, of all that have a contract
    task: Option<String>,
    /// At this provider; without one, at all of the task's
    provider: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What is shown of a report.
#[derive(Deserialize, Debug)]
struct ReportView {
    task: String,
    provider: String,
    verdict: String,
    passed: bool,
    checks: Vec<RowView>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(default)]
    certificate: Option<CertificateView>,
}

#[derive(Deserialize, Debug)]
struct CertificateView {
    id: String,
    valid_until: String,
}

#[derive(Deserialize, Debug)]
struct RowView {
    check: String,
    #[serde(default)]
    part: Option<String>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    case: Option<String>,
    passed: u32,
    failed: u32,
    #[serde(default)]
    undecided: u32,
    #[serde(default)]
    skipped: Option<String>,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    output: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &VerifyArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let pairs = contracts(&client, args.task.as_deref(), args.provider.as_deref())?;
    if pairs.is_empty() {
        let message = match (&args.task, &args.provider) {
            (None, None) => "no task has a contract".to_owned(),
            (task, provider) => {
                let names = [task, provider].into_iter().flatten().map(|name| format!("{name:?}"));
                format!("there is no contract of {}", names.collect::<Vec<_>>().join(" at "))
            }
        };
        let next = Some("`onejob contracts` lists what can be verified".to_owned());
        return Err(Stop::Told { exit: Exit::NotFound, message, next });
    }
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let mut reports: Vec<ReportView> = Vec::new();
    for pair in &pairs {
        let answer = verify(&client, pair, args.server.json, screen)?;
        reports.push(read(&answer)?);
        bodies.push(answer.body);
    }
    let passed = reports.iter().all(|report| report.passed);
    if args.server.json {
        print_json(passed, &bodies, screen)?;
    } else {
        show(&reports, screen)?;
    }
    Ok(if passed { Exit::Good } else { Exit::JobNotDone })
}

/// One run, with a bar while it lasts.
fn verify(client: &Client, pair: &ContractView, json: bool, screen: &mut Screen) -> Result<Answer, Stop> {
    let body = serde_json::json!({"task": pair.task, "provider": pair.provider}).to_string();
    let ask = || client.call(&["v1", "contracts", "verify"], Send::Json(&body, &[]), LONGEST);
    if json || !screen.is_live(60) {
        if !json {
            screen.note(format!("verifying {} at {} …", safe(&pair.task), safe(&pair.provider)));
        }
        return done(client, ask());
    }
    let answer = thread::scope(|scope| -> Result<_, Stop> {
        let asked = scope.spawn(ask);
        while !asked.is_finished() {
            if let Ok(found) = contracts(client, Some(&pair.task), Some(&pair.provider)) {
                let counts =
                    found.first().and_then(|found| found.running.as_ref()?.done.zip(found.running.as_ref()?.total));
                screen.redraw(&[bar(pair, counts, screen)])?;
            }
            thread::park_timeout(LOOK);
        }
        screen.redraw(&[])?;
        Ok(asked.join())
    })?;
    match answer {
        Ok(answer) => done(client, answer),
        Err(_) => Err(Stop::told(Exit::Unavailable, "the call broke off".to_owned())),
    }
}

fn done(client: &Client, answer: Result<Answer, NoAnswer>) -> Result<Answer, Stop> {
    answer.map_err(|no_answer| client.unreached(&no_answer))?.or_refused()
}

fn bar(pair: &ContractView, counts: Option<(u32, u32)>, screen: &Screen) -> String {
    let (done, total) = counts.unwrap_or((0, 0));
    let filled = (BAR as u32 * done).checked_div(total).unwrap_or(0).min(BAR as u32) as usize;
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
    format!(
        "{} at {}  {}  {done} of {total} calls",
        safe(&pair.task),
        safe(&pair.provider),
        screen.paint(Tone::Busy, &bar)
    )
}

fn print_json(passed: bool, bodies: &[Vec<u8>], screen: &mut Screen) -> Result<(), Stop> {
    let reports: Vec<&RawValue> = bodies.iter().filter_map(|body| serde_json::from_slice(body).ok()).collect();
    let document = serde_json::json!({"passed": passed, "reports": reports});
    screen.line(document.to_string())?;
    Ok(())
}

fn show(reports: &[ReportView], screen: &mut Screen) -> Result<(), Stop> {
    let header: Vec<&str> = ["task", "provider"].into_iter().chain(CHECKS).chain(["verdict"]).collect();
    let mut table = screen.table(&header);
    for report in reports {
        let mut row = vec![Cell::new(short(&report.task, 20)), Cell::new(short(&report.provider, 20))];
        row.extend(CHECKS.map(|check| cell(report, check)));
        row.push(coloured(&report.verdict, verdict_tone(&report.verdict)));
        table.add_row(row);
    }
    screen.print_table(&table)?;
    reports.iter().try_for_each(|report| explain(report, screen))
}

/// One square of the matrix.
fn cell(report: &ReportView, check: &str) -> Cell {
    let rows = report.checks.iter().filter(|row| row.check == check);
    let sum = |count: fn(&RowView) -> u32| rows.clone().map(count).sum::<u32>();
    let (passed, failed, undecided) = (sum(|row| row.passed), sum(|row| row.failed), sum(|row| row.undecided));
    if failed > 0 {
        coloured(&format!("{failed} of {} failed", passed + failed), Tone::Bad)
    } else if undecided > 0 {
        coloured(&format!("{undecided} undecided"), Tone::Doubt)
    } else if passed > 0 {
        coloured(&format!("ok ({passed})"), Tone::Good)
    } else {
        coloured("skipped", Tone::Faint)
    }
}

fn verdict_tone(verdict: &str) -> Tone {
    match verdict {
        "passed" => Tone::Good,
        "failed" => Tone::Bad,
        _ => Tone::Doubt,
    }
}

fn coloured(text: &str, tone: Tone) -> Cell {
    let colour = match tone {
        Tone::Good => Color::DarkGreen,
        Tone::Bad => Color::DarkRed,
        Tone::Doubt => Color::DarkYellow,
        Tone::Busy => Color::DarkCyan,
        Tone::Strong | Tone::Faint => Color::Reset,
    };
    Cell::new(safe(text)).fg(colour)
}

/// What stands behind a row of the matrix: the first failure of each check, what was not tried, and what
/// there is to know.
fn explain(report: &ReportView, screen: &mut Screen) -> Result<(), Stop> {
    screen.line("")?;
    let name = format!("{} at {}", safe(&report.task), safe(&report.provider));
    screen.line(screen.paint(Tone::Strong, &name))?;
    for check in CHECKS {
        let failed = report.checks.iter().find(|row| row.check == check && row.failed > 0);
        let undecided = report.checks.iter().find(|row| row.check == check && row.undecided > 0);
        if let Some(row) = failed.or(undecided) {
            say(row, screen)?;
        }
    }
    for row in report.checks.iter().filter(|row| row.skipped.is_some()) {
        let why = row.skipped.as_deref().unwrap_or_default();
        paragraph(&format!("  {}: skipped: {why}", place(row)), screen)?;
    }
    for note in &report.notes {
        paragraph(&format!("  note: {note}"), screen)?;
    }
    if let Some(certificate) = &report.certificate {
        let (id, until) = (safe(&certificate.id), clock(&certificate.valid_until));
        screen.line(format!("  certificate {id}, valid until {until}"))?;
    }
    Ok(())
}

fn say(row: &RowView, screen: &mut Screen) -> Result<(), Stop> {
    let (word, tone) = if row.failed > 0 { ("failed", Tone::Bad) } else { ("undecided", Tone::Doubt) };
    screen.line(format!("  {}: {}", safe(&place(row)), screen.paint(tone, word)))?;
    if let Some(detail) = &row.detail {
        paragraph(&format!("    {detail}"), screen)?;
    }
    if let Some(output) = &row.output {
        screen.line(format!("    {}", screen.paint(Tone::Faint, &short(output, QUOTE))))?;
    }
    Ok(())
}

/// Where in the contract a row belongs.
fn place(row: &RowView) -> String {
    let mut place = row.check.clone();
    if let Some(part) = &row.part {
        place.push_str(&format!(", {part}"));
    }
    if let Some(case) = &row.case {
        place.push_str(&format!(", case {case:?}"));
    }
    if let Some(mode) = &row.mode {
        place.push_str(&format!(", mode {mode}"));
    }
    place
}

/// A text of lines that begin as its first does.
fn paragraph(text: &str, screen: &mut Screen) -> Result<(), Stop> {
    let indent: String = text.chars().take_while(|c| *c == ' ').collect();
    for line in wrap(safe(text.trim_start()).as_str(), 100) {
        screen.line(format!("{indent}{line}"))?;
    }
    Ok(())
}
