//! What this build understands and does not act on yet: checked for shape, and said plainly in a
//! remark, so that nothing is ignored in silence.

use std::time::Duration;

use super::provider::{header_name, headers, secret, url_template, usage};
use super::section::{Item, Section};
use super::text::{Known, string_template, template};

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// `lookup`, `cancel` and `callback` of a provider of kind `http`.
pub(super) fn read(provider: &Section<'_>, known: &Known) {
    if let Some(item) = provider.get("lookup") {
        lookup(&item, known);
        item.not_yet("look-ups are not supported yet: an unknown attempt here is not looked up");
    }
    if let Some(item) = provider.get("cancel") {
        cancel(&item, known);
        item.not_yet("cancel calls are not supported yet: cancelling a job tells the provider nothing");
    }
    if let Some(item) = provider.get("callback") {
        callback(&item, known);
        item.not_yet("callbacks are not supported yet: what the provider sends to callback_url is not read");
    }
}

/// `idempotency`: the header is sent; what waits is the replay.
pub(super) fn idempotency(item: &Item<'_>) -> Option<String> {
    let section = item.section("a table such as { header = \"Idempotency-Key\", ttl = \"24h\" }")?;
    let header = section.need("header", "the name of a header such as \"Idempotency-Key\"").and_then(|item| {
        let name = item.string("Idempotency-Key")?;
        header_name(&item, name)
    });
    if let Some(item) = section.get("ttl") {
        item.duration(MILLISECOND..=365 * DAY);
    }
    section.end(&[]);
    item.not_yet(
        "the header is sent with the attempt's id; the replay of unknown attempts is not supported yet, so ttl has no \
         effect",
    );
    header
}

fn lookup(item: &Item<'_>, known: &Known) -> Option<()> {
    let section = item.section("a table with at least the url and the status")?;
    call(&section, known);
    if let Some(item) = section.get("every") {
        item.duration(10 * MILLISECOND..=DAY);
    }
    status(&section, known, true);
    if let Some(item) = section.get("absent") {
        item.word(&[("unknown", ()), ("not_executed", ())]);
    }
    section.end(&[]);
    Some(())
}

fn cancel(item: &Item<'_>, known: &Known) -> Option<()> {
    let section = item.section("a table with at least the url")?;
    call(&section, known);
    section.end(&[]);
    Some(())
}

/// A request that follows up on an attempt.
fn call(section: &Section<'_>, known: &Known) {
    const METHODS: [(&str, ()); 5] = [("GET", ()), ("POST", ()), ("PUT", ()), ("PATCH", ()), ("DELETE", ())];
    if let Some(item) = section.get("method") {
        item.word(&METHODS);
    }
    if let Some(item) = section.need("url", "a URL such as \"https://api.example.com/v1/posters/{{ handle }}\"") {
        url_template(&item, known.follow_up());
    }
    if let Some(item) = section.get("headers") {
        headers(&item, known.follow_up());
    }
    if let Some(item) = section.get("body") {
        template(&item, known.follow_up());
    }
}

/// How a look-up's answer or a callback is read.
fn status(section: &Section<'_>, known: &Known, is_needed: bool) {
    let expected = "a template such as \"{{ body.status }}\"";
    let status = if is_needed { section.need("status", expected) } else { section.get("status") };
    if let Some(item) = status {
        string_template(&item, "{{ body.status }}", known.later_answer());
    }
    for key in ["running", "succeeded", "failed"] {
        if let Some(item) = section.get(key) {
            item.strings("done");
        }
    }
    for key in ["output", "model", "error"] {
        if let Some(item) = section.get(key) {
            template(&item, known.later_answer());
        }
    }
    if let Some(item) = section.get("usage") {
        usage(&item, known.later_answer());
    }
}

fn callback(item: &Item<'_>, known: &Known) -> Option<()> {
    let section = item.section("a table such as { signature = \"standard-webhooks\" }")?;
    let mut is_signed = true;
    let signature = section.need("signature", "\"standard-webhooks\", \"hmac-sha256:X-Signature\" or \"none\"");
    if let Some(item) = signature {
        let word = item.string("standard-webhooks")?;
        is_signed = word != "none";
        match word.strip_prefix("hmac-sha256:") {
            Some(header) => {
                header_name(&item, header);
            }
            None if matches!(word, "standard-webhooks" | "none") => {}
            None => item.error(format!(
                "expected \"standard-webhooks\", \"hmac-sha256:\" and a header name, or \"none\", found {word:?}"
            )),
        }
    }
    match section.get("secret") {
        Some(item) if is_signed => {
            secret(&item);
        }
        Some(item) => item.error("there is nothing to sign with signature = \"none\": remove one of them"),
        None if is_signed => section.missing("secret", "{ env = \"NAME\" } or { file = \"path\" }, for the signature"),
        None => {}
    }
    status(&section, known, false);
    section.end(&[]);
    Some(())
}
