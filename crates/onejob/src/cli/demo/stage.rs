//! The stage of one play: the story's clock, the user's clicks, what the API says meanwhile, and
//! the claims at the end.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::super::client::{Answer, Client, NoAnswer, Send, ServerArgs};
use super::super::exit::Exit;
use super::super::job::{AttemptView, JobView};
use super::super::screen::{Screen, Tone, wrap};
use super::super::{Stop, job};
use super::node::Node;
use super::provider::Provider;
use super::report::{Claim, Shown};
use super::scene::{COLUMNS, Scene};

/// Between two looks at the job.
const FRAME: Duration = Duration::from_millis(50);
/// Nothing in a play takes this long; a machine that is this slow gets an error, not a hang.
const LIMIT: Duration = Duration::from_secs(30);
/// The pause after a play, in story seconds.
const BREATH: f64 = 0.8;
/// How long a click's post holds on for the result, in seconds.
const HOLD: u64 = 60;

/// The wish of a play: everything but the key may vary from click to click.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) key: &'static str,
    pub(super) task: &'static str,
    pub(super) input: &'static str,
}

/// An answer on its way.
pub(super) type Pending = JoinHandle<Result<Answer, NoAnswer>>;

/// How the demo is shown.
#[derive(Clone, Copy)]
pub(super) struct Show {
    /// Lines grow in place.
    pub(super) live: bool,
    /// Nothing is shown but the report, for programs.
    pub(super) quiet: bool,
    /// What a second of the story takes.
    pub(super) second: Duration,
}

/// The stage of one play.
pub(super) struct Stage<'a> {
    pub(super) node: &'a mut Node,
    pub(super) provider: &'a Provider,
    pub(super) screen: &'a mut Screen,
    show: Show,
    scene: Scene,
    begun: Instant,
    /// Where this play's part of the ledger begins.
    mark: usize,
    owner: &'static str,
    key: &'static str,
    job: Option<JobView>,
    claims: Vec<Claim>,
}

impl<'a> Stage<'a> {
    /// Says what the play is about and lifts the curtain. `length` is in story seconds.
    pub(super) fn open(
        (node, provider, screen): (&'a mut Node, &'a Provider, &'a mut Screen),
        show: Show,
        (title, about): (&str, &str),
        (key, length): (&'static str, f64),
    ) -> Result<Stage<'a>, Stop> {
        if !show.quiet {
            screen.line(screen.paint(Tone::Strong, title))?;
            for line in wrap(about, COLUMNS - 4) {
                screen.line(format!("   {line}"))?;
            }
            screen.line("")?;
        }
        let (scene, mark) = (Scene::new(show.second.mul_f64(length)), provider.mark());
        let (begun, owner) = (Instant::now(), "user_42");
        Ok(Stage { node, provider, screen, show, scene, begun, mark, owner, key, job: None, claims: Vec::new() })
    }

    /// The user clicks: a post in the background that holds on for the result.
    pub(super) fn click(&mut self, wish: Wish) -> Pending {
        self.scene.click(self.begun.elapsed());
        let url = self.node.url.clone();
        let body = format!(r#"{{"owner": "{}", "task": "{}", "input": {}}}"#, self.owner, wish.task, wish.input);
        std::thread::spawn(move || {
            let args = ServerArgs { url, access_key: None, json: false };
            let client = Client::new(&args).map_err(|_| NoAnswer("no client".to_owned()))?;
            let hold = format!("wait={HOLD}");
            let headers = [("idempotency-key", wish.key), ("prefer", hold.as_str())];
            client.call(&["v1", "jobs"], Send::Json(&body, &headers), Duration::from_secs(HOLD))
        })
    }

    /// The user clicks and gets whatever is known at once.
    pub(super) fn glance(&mut self, wish: Wish) -> Result<Answer, Stop> {
        self.scene.click(self.begun.elapsed());
        let body = format!(r#"{{"owner": "{}", "task": "{}", "input": {}}}"#, self.owner, wish.task, wish.input);
        self.post(&["v1", "jobs"], &body, &[("idempotency-key", wish.key)])
    }

    /// The user clicks on the fallback: an attempt by hand.
    pub(super) fn start_by_hand(&mut self, provider: &str) -> Result<Answer, Stop> {
        self.scene.click(self.begun.elapsed());
        let id = self.id();
        self.post(&["v1", "jobs", &id, "attempts"], &format!(r#"{{"provider": "{provider}", "force": true}}"#), &[])
    }

    /// One call, answered at once.
    pub(super) fn post(&self, path: &[&str], body: &str, headers: &[(&str, &str)]) -> Result<Answer, Stop> {
        let answer = self.node.client.call(path, Send::Json(body, headers), Duration::ZERO);
        answer.map_err(|no_answer| self.node.client.unreached(&no_answer))
    }

    /// Plays on until that second of the story.
    pub(super) fn play_to(&mut self, second: f64) -> Result<(), Stop> {
        let end = self.show.second.mul_f64(second);
        while self.begun.elapsed() < end {
            self.frame()?;
            std::thread::sleep(FRAME.min(end.saturating_sub(self.begun.elapsed())));
        }
        self.frame()
    }

    /// Plays on until the job is so.
    pub(super) fn play_until(&mut self, what: &str, test: impl Fn(&JobView) -> bool) -> Result<JobView, Stop> {
        let end = Instant::now() + LIMIT;
        loop {
            self.frame()?;
            match &self.job {
                Some(job) if test(job) => return Ok(job.clone()),
                Some(_) | None if Instant::now() > end => {
                    let message = format!("the demo waited {} s for {what}, in vain", LIMIT.as_secs());
                    return Err(Stop::told(Exit::JobNotDone, message));
                }
                Some(_) | None => std::thread::sleep(FRAME),
            }
        }
    }

    /// Tells the audience what happens now.
    pub(super) fn tell(&mut self, tone: Tone, text: &str) -> Result<(), Stop> {
        self.scene.tell(self.begun.elapsed(), tone, text);
        let in_lines = !self.show.quiet && !self.show.live;
        if let Some(line) = self.scene.last_event(self.screen).filter(|_| in_lines) {
            self.screen.line(line)?;
        }
        self.frame()
    }

    /// The job's id, as it was seen last.
    pub(super) fn id(&self) -> String {
        self.job.as_ref().map(|job| job.id.clone()).unwrap_or_default()
    }

    /// An attempt of the job, as it was seen last.
    pub(super) fn attempt(&self, number: u32) -> Option<&AttemptView> {
        self.job.as_ref()?.attempts.iter().find(|attempt| attempt.number == number)
    }

    /// How often the provider was made to work in this play, by its own ledger.
    pub(super) fn executions(&self) -> usize {
        self.provider.since(self.mark).len()
    }

    /// What the provider did first in this play, by its own ledger.
    pub(super) fn first_execution(&self) -> Option<super::provider::Execution> {
        self.provider.since(self.mark).into_iter().next()
    }

    /// Waits for the answers to clicks.
    pub(super) fn answers(&self, pending: Vec<Pending>) -> Result<Vec<Answer>, Stop> {
        let answers = pending.into_iter().map(|answer| match answer.join() {
            Ok(answer) => answer.map_err(|no_answer| self.node.client.unreached(&no_answer)),
            Err(_) => Err(Stop::told(Exit::JobNotDone, "a click fell over".to_owned())),
        });
        answers.collect()
    }

    /// A promise, and whether it holds; `seen` is shown if it does not.
    pub(super) fn claim(&mut self, claim: &str, holds: bool, seen: impl std::fmt::Debug) {
        let seen = (!holds).then(|| format!("{seen:?}"));
        self.claims.push(Claim { claim: claim.to_owned(), holds, seen });
    }

    /// Lets the curtain fall: the last picture stays, and the claims under it.
    pub(super) fn close(mut self, play: &'static str, otherwise: &'static str) -> Result<Shown, Stop> {
        self.frame()?;
        let executions = self.executions();
        if !self.show.quiet {
            if self.show.live {
                self.screen.keep();
            } else {
                self.screen.line("")?;
                for line in self.scene.timeline(self.begun.elapsed(), self.screen) {
                    self.screen.line(line)?;
                }
            }
            self.screen.line("")?;
            for claim in &self.claims {
                self.screen.line(claim.line(self.screen))?;
            }
            self.screen.line("")?;
            // Time to read the claims before the next play begins.
            std::thread::sleep(self.show.second.mul_f64(BREATH));
        }
        Ok(Shown { play, clicks: self.scene.clicks(), executions, otherwise, claims: self.claims })
    }

    /// Looks at the job and the ledger, and draws.
    fn frame(&mut self) -> Result<(), Stop> {
        #[derive(Deserialize)]
        struct Found {
            jobs: Vec<JobView>,
        }
        let query = [("owner", self.owner), ("idempotency_key", self.key)];
        // No answer is part of the play: the node may be dead just now.
        match self.node.client.call(&["v1", "jobs"], Send::Get(&query), Duration::ZERO) {
            Ok(answer) => {
                let found = job::read::<Found>(&answer.or_refused()?)?.jobs.into_iter().next();
                if let Some(job) = found {
                    self.scene.see(self.begun.elapsed(), &job);
                    self.job = Some(job);
                }
            }
            Err(_) => self.scene.lose_sight(self.begun.elapsed()),
        }
        self.scene.count(self.begun.elapsed(), self.executions());
        if self.show.live && !self.show.quiet {
            let mut lines = self.scene.timeline(self.begun.elapsed(), self.screen);
            lines.push(String::new());
            lines.extend(self.scene.events(self.screen));
            self.screen.redraw(&lines)?;
        }
        Ok(())
    }
}
