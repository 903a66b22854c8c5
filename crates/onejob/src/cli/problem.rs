//! Refusals of the server: problem documents (RFC 9457) made readable, with what to do next.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::client::Answer;
use super::exit::Exit;
use super::screen::{Screen, Tone, safe};

/// A refusal: what the server said, and its words byte for byte.
#[derive(Debug)]
pub(crate) struct Problem {
    status: u16,
    members: BTreeMap<String, Box<RawValue>>,
    body: Vec<u8>,
}

impl Problem {
    /// Reads an answer that is no success. Something that is no problem document, such as a proxy's
    /// page, is a problem without members.
    pub(crate) fn of(answer: Answer) -> Problem {
        let members = serde_json::from_slice(&answer.body).unwrap_or_default();
        Problem { status: answer.status, members, body: answer.body }
    }

    /// The last part of its type, such as `idempotency-conflict`; empty if it has none.
    pub(crate) fn name(&self) -> String {
        self.text("type").map(|t| t.rsplit('/').next().unwrap_or_default().to_owned()).unwrap_or_default()
    }

    /// How the command ends with it.
    pub(crate) fn exit(&self) -> Exit {
        Exit::of_status(self.status)
    }

    /// A member that is a string.
    pub(crate) fn text(&self, member: &str) -> Option<String> {
        self.members.get(member).and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    /// Its status, its name and where it differs: `409 idempotency-conflict, /input/text`.
    pub(crate) fn brief(&self) -> String {
        let differs = self.members.get("differs").map(|value| format!(", {}", shown(value)));
        safe(&format!("{} {}{}", self.status, self.name(), differs.unwrap_or_default()))
    }

    /// Shows it: for programs its own bytes on standard output, for people sentences on standard
    /// error.
    pub(crate) fn show(&self, json: bool, screen: &mut Screen) -> std::io::Result<()> {
        if json && !self.members.is_empty() {
            return screen.raw(&self.body);
        }
        let name = self.name();
        let title = self.text("title").unwrap_or_else(|| "The server did not answer as onejob does".to_owned());
        let kind = if name.is_empty() { self.status.to_string() } else { format!("{} {name}", self.status) };
        screen.notice(Tone::Bad, "error:", format!("{} ({})", safe(&title), safe(&kind)));
        if let Some(detail) = self.text("detail") {
            screen.note(format!("  {}", safe(&detail)));
        }
        for (member, value) in &self.members {
            if !["type", "title", "status", "detail", "instance"].contains(&member.as_str()) {
                screen.note(format!("  {}: {}", safe(member), safe(&shown(value))));
            }
        }
        if let Some(next) = self.next() {
            screen.notice(Tone::Strong, "next:", next);
        }
        Ok(())
    }

    /// What the reader can do about it.
    fn next(&self) -> Option<String> {
        let job = self.text("job").unwrap_or_else(|| "JOB".to_owned());
        let attempt = self.text("attempt").unwrap_or_else(|| "ATTEMPT".to_owned());
        let next = match self.name().as_str() {
            "idempotency-conflict" => format!(
                "the key already names another intent: see `onejob get {job}`. The same wish needs exactly the same \
                 task, input and pinned provider; another wish needs another key."
            ),
            "idempotency-key-missing" | "idempotency-key-invalid" => {
                "give --key one name per wish: 1 to 255 visible ASCII characters without quotes, backslashes and \
                 commas, the same at every retry."
                    .to_owned()
            }
            "idempotency-key-expired" => {
                "the job of this key ended long ago and never runs again. A new wish needs a new key.".to_owned()
            }
            "attempt-in-flight" => match self.text("state").as_deref() {
                Some("unknown") => format!(
                    "nobody knows what became of {attempt}, so nothing may start beside it. Look at the provider, \
                     then `onejob resolve {attempt} --outcome … --reason …`."
                ),
                _ => format!("{attempt} may still be alive; wait for its end with `onejob watch {job}`."),
            },
            "job-closed" => format!("the job has ended: see `onejob get {job}`. Only a failed job can be retried."),
            "provider-not-verified" => {
                "this provider has not proved that it honours the task's contract; --force starts there all the same."
                    .to_owned()
            }
            "attempt-closed" | "superseded" => {
                "an attempt that has ended never changes; see its job with `onejob get`.".to_owned()
            }
            "store-unavailable" | "outcome-unknown" | "overloaded" => {
                "run the same command again, with the same key: that never starts the work twice.".to_owned()
            }
            _ if self.members.is_empty() => "check --url (ONEJOB_URL): is that a onejob server?".to_owned(),
            _ => return None,
        };
        Some(safe(&next))
    }
}

/// A member's value without needless quotes.
fn shown(value: &RawValue) -> String {
    if let Ok(text) = serde_json::from_str::<String>(value.get()) {
        return text;
    }
    match serde_json::from_str::<Vec<String>>(value.get()) {
        Ok(list) => list.join(", "),
        Err(_) => value.get().to_owned(),
    }
}
