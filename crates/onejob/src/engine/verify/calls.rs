//! The calls of a verification, made as attempts make theirs.

use std::sync::Arc;
use std::time::Duration;

use onejob_core::{FailureClass, Meaning};
use serde_json::Value;
use tokio::time::Instant;

use super::super::lane::{Lane, Slot};
use super::super::{Inner, Stage};
use crate::config::Task;
use crate::contract::verify::{Ask, Caller, Came};
use crate::id;
use crate::provider::{Answer, CallInput, Progress, Trouble};
use crate::template::Template;

/// How long a call of a verification waits for a slot.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks for a free slot.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often a call that was refused, or not sent, is made again.
pub(super) const TRIES_AGAIN: u32 = 2;

/// The longest pause before that, whatever the provider asks for: then the run is left undecided.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Owner of the calls, for templates and for the provider's own records.
const OWNER: &str = "onejob-verification";

/// Why a call was not made, or not awaited, at the end of a node.
const STOPPING: &str = "this node is stopping";

/// Makes the calls of one run.
pub(super) struct Calls {
    pub(super) inner: Arc<Inner>,
    pub(super) lane: Arc<Lane>,
    pub(super) task: Arc<Task>,
}

impl Calls {
    fn input(&self, ask: Ask) -> CallInput {
        let attempt = id::new_attempt_id();
        CallInput {
            job: id::new_job_id(),
            owner: OWNER.into(),
            task: self.task.name.clone(),
            attempt,
            number: 1,
            input: ask.input,
            chat: ask.chat,
            callback_url: format!("{}/v1/callbacks/{}", self.inner.config.server.public_url, id::attempt_text(attempt)),
        }
    }

    /// A slot, once no job waits for it.
    pub(super) async fn slot(&self) -> Result<Slot, String> {
        let patience = Instant::now() + PATIENCE;
        loop {
            if self.inner.draining() {
                return Err(STOPPING.to_owned());
            }
            if let Some(slot) = self.inner.slot_in_line(&self.lane) {
                return Ok(slot);
            }
            if Instant::now() >= patience {
                return Err(format!("no slot of the provider was free for {} s", PATIENCE.as_secs()));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn once(&self, ask: Ask) -> Came {
        let _slot = match self.slot().await {
            Ok(slot) => slot,
            Err(why) => return Came::NotMade(why),
        };
        let request = match self.lane.provider.prepare(&self.input(ask)) {
            Ok(request) => request,
            Err(failure) => return Came::NotPrepared(failure),
        };
        let (began, progress) = (Instant::now(), Progress::new());
        tokio::select! {
            answer = self.lane.provider.send(request, &progress) => Came::Answered { answer, took: began.elapsed() },
            () = tokio::time::sleep(self.task.attempt_timeout) => Came::Silent,
            () = self.draining() => Came::NotMade(STOPPING.to_owned()),
        }
    }

    async fn draining(&self) {
        let mut stage = self.inner.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage >= Stage::Draining).await;
    }
}

impl Caller for Calls {
    async fn call(&self, ask: Ask) -> Came {
        let mut made = 0;
        loop {
            let came = self.once(ask.clone()).await;
            let Some(pause) = pause_after(&came, made) else { return came };
            made += 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.draining() => return came,
            }
        }
    }

    async fn beside(&self, url: &Template, sibling: Option<&'static str>, body: Value) -> Result<Value, Trouble> {
        let ask = Ask { input: Value::Null, chat: None };
        let call = CallInput { chat: self.task.chat.clone(), ..self.input(ask) };
        let asked = self.lane.provider.ask_beside(&call, url, sibling, body);
        tokio::select! {
            answer = asked => answer.map_err(|trouble| trouble.map(|why| format!("the tokenizer's endpoint: {why}"))),
            () = tokio::time::sleep(self.task.attempt_timeout) => {
                Err(Trouble::Away("the tokenizer's endpoint does not answer".to_owned()))
            }
            () = self.draining() => Err(Trouble::Away(STOPPING.to_owned())),
        }
    }
}

/// How long to wait before a call is made again; `None` if it is not.
pub(super) fn pause_after(came: &Came, made: u32) -> Option<Duration> {
    let Came::Answered { answer: Answer::Broken { meaning, retry_after_ms, .. }, .. } = came else { return None };
    let busy = matches!(meaning, Meaning::Failed(FailureClass::Refused | FailureClass::NotSent));
    if !busy || made >= TRIES_AGAIN {
        return None;
    }
    let pause = retry_after_ms.map_or(Duration::from_millis(250 << made), Duration::from_millis);
    (pause <= LONGEST_PAUSE).then_some(pause)
}
