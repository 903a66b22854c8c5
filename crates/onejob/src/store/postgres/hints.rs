//! What nodes tell each other: jobs that changed, providers that have work. Sent after the commit, some
//! times a second at most, on a connection of its own; only ever a hint. A notification that takes part in
//! the transaction itself would make all commits of all nodes wait for each other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use onejob_core::{JobId, Slot, Text};
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client};

use super::fault::sentence;
use super::{Shared, sql, tls};
use crate::store::{Changed, Heard, Record};

const CHANNEL: &str = "onejob";

/// Between two notifications of this node.
const APART: Duration = Duration::from_millis(50);

/// A notification holds less than 8,000 bytes; so many job ids leave room for the rest.
const LONGEST: usize = 7_900;
const MOST_JOBS: usize = 150;

/// A listener that hears nothing may be dead: half-open connections look alive.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

/// Between two tries to listen again.
const RECONNECT: Duration = Duration::from_millis(500);

/// Hints that a slow hearer may leave unread before it is told of a gap.
const UNREAD: usize = 256;

/// What this node has to tell, and whom it tells what it hears.
pub(super) struct Hints {
    untold: Mutex<Untold>,
    news: Notify,
    pub(super) heard: broadcast::Sender<Heard>,
    /// Marks our own notifications.
    sender: String,
    is_on: bool,
}

#[derive(Default)]
struct Untold {
    providers: BTreeSet<Text>,
    jobs: BTreeSet<JobId>,
    is_too_many: bool,
}

impl Hints {
    pub(super) fn new(is_on: bool) -> Hints {
        Hints {
            untold: Mutex::default(),
            news: Notify::new(),
            heard: broadcast::channel(UNREAD).0,
            sender: format!("{:016x}", fastrand::u64(..)),
            is_on,
        }
    }

    /// Keeps what is to be told of jobs that were written.
    pub(super) fn tell(&self, records: &[Arc<Record>]) {
        if !self.is_on || records.is_empty() {
            return;
        }
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            if let Slot::Open { plan: Some(plan) } = &record.job.slot
                && !untold.providers.contains(&plan.provider)
            {
                untold.providers.insert(plan.provider.clone());
            }
            if untold.jobs.len() < MOST_JOBS {
                untold.jobs.insert(record.job.id);
            } else if !untold.jobs.contains(&record.job.id) {
                untold.is_too_many = true;
                break;
            }
        }
        drop(untold);
        self.news.notify_one();
    }

    fn take(&self) -> String {
        let untold = std::mem::take(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner));
        let jobs = match untold.is_too_many {
            true => Value::Null,
            false => untold.jobs.iter().map(|job| format!("{:032x}", job.0)).collect(),
        };
        let providers: Vec<&str> = untold.providers.iter().map(|name| &**name).collect();
        let payload = json!({"from": self.sender, "providers": providers, "jobs": jobs}).to_string();
        if payload.len() <= LONGEST { payload } else { json!({"from": self.sender}).to_string() }
    }

    /// What a notification says; nothing if it is our own or none of ours.
    fn read(&self, payload: &str) -> Option<Heard> {
        let said: Value = serde_json::from_str(payload).ok()?;
        if said["from"].as_str()? == self.sender {
            return None;
        }
        let Some(providers) = said["providers"].as_array() else { return Some(Heard::Gap) };
        let providers = providers.iter().filter_map(|name| name.as_str().map(Text::from)).collect();
        let jobs = match said["jobs"].as_array() {
            None => Changed::Many,
            Some(jobs) => {
                let ids = jobs.iter().filter_map(|id| u128::from_str_radix(id.as_str()?, 16).ok().map(JobId));
                Changed::These(ids.collect())
            }
        };
        Some(Heard::Hint { providers, jobs })
    }
}

/// Listens and tells until the store is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        if let Err(why) = attend(&shared).await {
            tracing::warn!(error = %why, "this node does not hear the others for a moment: it looks for itself");
        }
        // What was said meanwhile is lost.
        let _ = shared.hints.heard.send(Heard::Gap);
        tokio::time::sleep(RECONNECT).await;
    }
}

/// One connection, until it fails.
async fn attend(shared: &Shared) -> Result<(), String> {
    let connector = tls::connector(&shared.options.tls)?;
    let mut config = shared.options.config.clone();
    config.application_name("onejob-listener");
    // A server that takes the connection and then says nothing must not leave this node deaf for ever.
    let (client, mut connection) = in_time(config.connect(connector)).await?;
    let (said, mut heard) = mpsc::unbounded_channel();
    let driven = tokio::spawn(async move {
        let mut messages = stream::poll_fn(|context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message
                && said.send(notification.payload().to_owned()).is_err()
            {
                return;
            }
        }
    });
    let _ends_with_us = AbortOnDrop(driven);
    in_time(client.batch_execute(&format!("LISTEN {CHANNEL}"))).await?;
    let _ = shared.hints.heard.send(Heard::Gap);
    let hints = &shared.hints;
    tokio::select! {
        () = hear(hints, &mut heard) => Err("the connection ended".into()),
        end = tell(hints, &client) => end,
        end = ping(&client) => end,
    }
}

async fn hear(hints: &Hints, heard: &mut mpsc::UnboundedReceiver<String>) {
    while let Some(payload) = heard.recv().await {
        if let Some(hint) = hints.read(&payload) {
            let _ = hints.heard.send(hint);
        }
    }
}

/// One change alone is told at once; a storm of them together.
async fn tell(hints: &Hints, client: &Client) -> Result<(), String> {
    loop {
        hints.news.notified().await;
        let payload = hints.take();
        let bound: &[(&(dyn ToSql + Sync), Type)] = &[(&CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
        let sent = client.query_typed(sql::NOTIFY.text, bound);
        in_time(sent).await?;
        tokio::time::sleep(APART).await;
    }
}

async fn ping(client: &Client) -> Result<(), String> {
    loop {
        tokio::time::sleep(PING).await;
        in_time(client.simple_query("")).await?;
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, String> {
    match tokio::time::timeout(PONG, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(sentence(&error)),
        Err(_) => Err("no answer in time".into()),
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
