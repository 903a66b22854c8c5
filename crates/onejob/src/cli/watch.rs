//! `onejob watch`: a job's timeline until its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;

use super::Stop;
use super::client::{Answer, Client, NoAnswer, Send, ServerArgs};
use super::exit::{self, Exit};
use super::get::Which;
use super::input;
use super::job::{AttemptView, JobView, endings, resolve_line};
use super::screen::{Screen, Tone, safe, short, wrap};
use super::timeline::Track;

const EXAMPLES: &str = "\
Examples:
  onejob watch job_01k8…
  onejob watch --owner user_42 --key click-8f3a
  onejob watch job_01k8… --timeout 60 && echo done
  onejob watch job_01k8… --json | jq -r .state
";

/// How often to ask while something moves.
const QUICK: Duration = Duration::from_millis(200);
/// How often to ask when nothing has moved for a while.
const SLOW: Duration = Duration::from_secs(1);
/// How long without a change is a while.
const CALM: Duration = Duration::from_secs(15);
/// What the live timeline needs.
const COLUMNS: usize = 80;
/// The part of it that is the line.
const CELLS: usize = 40;

/// Follow a job until its end
///
/// Stays while the job is unknown and says what would end that. On a terminal a line per attempt grows in place;
/// elsewhere a line is printed per change; with --json the whole job at each change, one per line. The exit code tells
/// how it ended.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::help()))]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    which: Which,
    /// Give up after this time: exits 3 if it is unknown then, 7 if it is still on its way
    #[arg(long, value_parser = input::length, value_name = "TIME")]
    timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Runs the verb.
pub(crate) fn run(args: &WatchArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let client = Client::new(&args.server)?;
    let id = args.which.id(&client)?;
    let begin = Instant::now();
    let mut watch = Watch { begin, offset: None, tracks: BTreeMap::new(), last: Vec::new(), moved: begin, away: false };
    let live = !args.server.json && screen.is_live(COLUMNS);
    loop {
        let sent = client.call(&["v1", "jobs", &id], Send::Get(&[]), Duration::ZERO);
        let over = args.timeout.is_some_and(|timeout| begin.elapsed() >= timeout);
        if let Some(answer) = watch.reached(sent, &client, over, screen)? {
            let job = JobView::of(&answer)?;
            let changes = watch.see(&job);
            if args.server.json {
                watch.print_json(&answer, screen)?;
            } else if live {
                screen.redraw(&watch.draw(&job, screen))?;
            } else {
                changes.iter().try_for_each(|line| screen.line(line))?;
            }
            if job.is_terminal() || over {
                return finish(&job, args, live, screen);
            }
        }
        let calm = watch.moved.elapsed() > CALM;
        std::thread::sleep(if calm && !live { SLOW } else { QUICK });
    }
}

fn finish(job: &JobView, args: &WatchArgs, live: bool, screen: &mut Screen) -> Result<Exit, Stop> {
    if live {
        screen.keep();
        screen.line("")?;
    }
    if !args.server.json {
        job.show(screen)?;
    }
    Ok(Exit::of_job(&job.state, true))
}

/// What was seen so far.
struct Watch {
    begin: Instant,
    /// How old the job was when watching began.
    offset: Option<Duration>,
    tracks: BTreeMap<u32, Track>,
    /// The body that was printed last.
    last: Vec<u8>,
    moved: Instant,
    away: bool,
}

impl Watch {
    /// The answer, or nothing while the server is away: it may be restarting, and the job is on its
    /// disk.
    fn reached(
        &mut self,
        sent: Result<Answer, NoAnswer>,
        client: &Client,
        over: bool,
        screen: &mut Screen,
    ) -> Result<Option<Answer>, Stop> {
        let why = match sent {
            Ok(answer) if answer.status != 503 || over => {
                if std::mem::take(&mut self.away) {
                    screen.note("the server is back");
                }
                return answer.or_refused().map(Some);
            }
            Ok(_) => NoAnswer("it answers 503".to_owned()),
            Err(no_answer) => no_answer,
        };
        // At the first call nothing says that there is a server at all.
        if over || self.offset.is_none() {
            return Err(client.unreached(&why));
        }
        if !std::mem::replace(&mut self.away, true) {
            screen.keep();
            screen.notice(Tone::Doubt, "away:", format!("no answer from {}; still asking", client.address()));
        }
        Ok(None)
    }

    /// Notes the states of the attempts; gives a line for each change.
    fn see(&mut self, job: &JobView) -> Vec<String> {
        let offset = *self.offset.get_or_insert_with(|| age(&job.created_at));
        let now = offset + self.begin.elapsed();
        let mut lines = Vec::new();
        for attempt in &job.attempts {
            let at = |moment: &str| now.saturating_sub(age(moment));
            let is_new = !self.tracks.contains_key(&attempt.number);
            let track =
                self.tracks.entry(attempt.number).or_insert_with(|| Track::new(at(&attempt.started_at), "starting"));
            let seen = attempt.finished_at.as_deref().or(attempt.unknown_since.as_deref()).map_or(now, at);
            if track.see(seen, &attempt.state) || is_new {
                lines.push(change(attempt, seen));
            }
        }
        if !lines.is_empty() {
            self.moved = Instant::now();
        }
        lines
    }

    fn print_json(&mut self, answer: &Answer, screen: &mut Screen) -> Result<(), Stop> {
        if self.last != answer.body {
            screen.raw(&answer.body)?;
            self.last.clone_from(&answer.body);
            self.moved = Instant::now();
        }
        Ok(())
    }

    fn draw(&self, job: &JobView, screen: &Screen) -> Vec<String> {
        let now = self.offset.unwrap_or_default() + self.begin.elapsed();
        let mut horizon = Duration::from_secs(10);
        while horizon < now {
            horizon *= 2;
        }
        let state = screen.paint(Tone::of_state(&job.state), &safe(&job.state));
        let mut lines = vec![format!("{}  {state}", screen.paint(Tone::Strong, &safe(&job.id)))];
        for attempt in &job.attempts {
            let Some(track) = self.tracks.get(&attempt.number) else { continue };
            let bar = track.draw(now, horizon, CELLS).into_iter().map(|(tone, text)| screen.paint(tone, &text));
            let word = screen.paint(Tone::of_state(&attempt.state), &format!("{:<10}", short(&attempt.state, 10)));
            let label = format!("{:>3} {:<10}", attempt.number, short(&attempt.provider, 10));
            let end = track.ended().unwrap_or(now);
            lines.push(format!("{label} {} {word} {:>7.1} s", bar.collect::<String>(), end.as_secs_f64()));
        }
        match job.attempts.iter().find(|a| a.state == "unknown") {
            Some(attempt) => {
                lines.push(format!("  {}", screen.paint(Tone::Doubt, &short(&attempt.remark(), 76))));
                lines.extend(wrap(endings(), 76).into_iter().map(|line| format!("  {line}")));
                lines.push(format!("    {}", short(&resolve_line(&attempt.id), COLUMNS - 4)));
            }
            None if job.state == "queued" => lines.push("  waiting for its next attempt".to_owned()),
            None => {}
        }
        lines
    }
}

fn change(attempt: &AttemptView, at: Duration) -> String {
    let remark = attempt.remark();
    let mut line = format!(
        "{:>8.1} s  #{} {}: {}",
        at.as_secs_f64(),
        attempt.number,
        safe(&attempt.provider),
        safe(&attempt.state)
    );
    if !remark.is_empty() {
        line.push_str(&format!(" ({remark})"));
    }
    if attempt.state == "unknown" {
        line.push_str(&format!("; {} {}", endings(), resolve_line(&safe(&attempt.id))));
    }
    line
}

fn age(moment: &str) -> Duration {
    let age = moment.parse::<jiff::Timestamp>().map(|at| jiff::Timestamp::now().duration_since(at));
    age.ok().and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}
