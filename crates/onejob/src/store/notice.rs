//! Notices as they are stored: a word, and a JSON object with ids, words, digests and sizes.

use onejob_core::{AttemptId, Change, Digest, Dropped, JobId, LateWord, Millis, Notice};
use serde_json::{Map, Value, json};

use super::StoredNotice;
use crate::id::attempt_text;
use crate::intent::Intent;

/// So many notices of one kind are kept of a job: what a caller or a provider can say again and again
/// must not fill the store. The first ones tell the story.
pub(super) const MOST_OF_A_KIND: usize = 100;

/// The notices of a change.
pub(super) fn stored_notices(change: &Change, at: Millis) -> impl Iterator<Item = StoredNotice> {
    let job = change.job.id;
    change.notices.iter().map(move |notice| StoredNotice {
        at,
        job,
        attempt: Some(attempt_of(notice)),
        kind: notice.kind().into(),
        detail: notice_detail(notice).into(),
    })
}

/// The same intent came again for the first time; later ones are only counted.
pub(super) fn duplicate_notice(job: JobId, at: Millis) -> StoredNotice {
    StoredNotice { at, job, attempt: None, kind: "duplicate".into(), detail: "{}".into() }
}

/// The key was used for another intent (R2).
pub(super) fn conflict_notice(job: JobId, refused: &Intent, at: Millis) -> StoredNotice {
    let detail = json!({
        "fingerprint": hex(&refused.fingerprint.digest),
        "fingerprint_version": refused.fingerprint.version,
    });
    StoredNotice { at, job, attempt: None, kind: "conflict".into(), detail: detail.to_string().into() }
}

/// The detail of a notice as it is stored: a JSON object with ids, words, digests and sizes.
pub fn notice_detail(notice: &Notice) -> String {
    let mut detail = Map::new();
    let mut put = |name: &str, value: Value| detail.insert(name.into(), value);
    match notice {
        Notice::Unknown { cause, .. } => {
            put("cause", cause.as_str().into());
        }
        Notice::RaceLost { winner, dropped, .. } => {
            put("winner", winner.map(attempt_text).into());
            if let Some(dropped) = dropped {
                put("dropped", dropped_json(dropped));
            }
        }
        Notice::Late { state, word, .. } => {
            put("state", state.as_str().into());
            match word {
                LateWord::Succeeded(dropped) => {
                    put("said", "succeeded".into());
                    put("dropped", dropped_json(dropped));
                }
                LateWord::Failed(class) => {
                    put("said", "failed".into());
                    put("class", class.as_str().into());
                }
                LateWord::Cancelled => {
                    put("said", "cancelled".into());
                }
            }
        }
        Notice::Resolved { by, state, reason, .. } => {
            put("by", by.as_str().into());
            put("state", state.as_str().into());
            if let Some(reason) = reason {
                put("reason", reason.as_ref().into());
            }
        }
    }
    Value::Object(detail).to_string()
}

fn attempt_of(notice: &Notice) -> AttemptId {
    match notice {
        Notice::Unknown { attempt, .. }
        | Notice::RaceLost { attempt, .. }
        | Notice::Late { attempt, .. }
        | Notice::Resolved { attempt, .. } => *attempt,
    }
}

fn dropped_json(dropped: &Dropped) -> Value {
    json!({ "sha256": hex(&dropped.digest), "bytes": dropped.bytes })
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
