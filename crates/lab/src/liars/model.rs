//! The model behind the lying providers: it reads a prompt as it arrives at a real one, rendered and cut to
//! its window, and answers by rule. What a lie does to the prompt, it sees; nothing else tells it of a lie.

use serde_json::{Value, json};

use super::tokens::{END, START};

/// Countries, their capitals, residents, and what to see.
const FACTS: [(&str, &str, u64, [&str; 2]); 4] = [
    ("France", "Paris", 2_100_000, ["Louvre", "Panthéon"]),
    ("Kenya", "Nairobi", 4_400_000, ["Karura", "Uhuru"]),
    ("Japan", "Tokyo", 14_000_000, ["Ueno", "Asakusa"]),
    ("São Tomé", "São Tomé", 1_200_000, ["Forte", "Sé"]),
];

/// What a model writes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Written {
    /// Text.
    Text(String),
    /// The answer to the task.
    Answer(Value),
}

/// What stands in a prompt.
struct Read<'a> {
    system: &'a str,
    user: &'a str,
}

/// Reads and answers. `wants_json` is what the request demanded beside the prompt.
pub(crate) fn answer(prompt: &str, wants_json: bool) -> Written {
    let Read { system, user } = read(prompt);
    if let Some(word) = after(system, "answer with the word ") {
        return Written::Text(word.split_whitespace().next().unwrap_or_default().to_owned());
    }
    if user.contains("What is the code?") {
        let code = after(user, "The code is ").and_then(|rest| rest.split('.').next());
        return Written::Text(code.unwrap_or("I see no code.").to_owned());
    }
    let Some(country) = after(user, "the capital of ").and_then(|rest| rest.split('?').next()) else {
        return Written::Text("Hello! How can I help you?".to_owned());
    };
    let (capital, residents, landmarks) = facts(country);
    if system.contains("JSON") || wants_json {
        let answer = json!({"city": capital, "country": country, "residents": residents, "landmarks": landmarks});
        return Written::Answer(answer);
    }
    Written::Text(format!("The capital of {country} is {capital}."))
}

/// The last line of what the user says.
pub(crate) fn question(prompt: &str) -> &str {
    read(prompt).user.lines().last().unwrap_or_default()
}

fn facts(country: &str) -> (&'static str, u64, [&'static str; 2]) {
    let known = FACTS.iter().find(|(name, ..)| *name == country);
    known.map_or(("Atlantis", 1_000_000, ["the sea", "more sea"]), |(_, city, residents, sights)| {
        (*city, *residents, *sights)
    })
}

/// The turns of a prompt: by control tokens, or as a model copes that never saw this markup.
fn read(prompt: &str) -> Read<'_> {
    let turn = |role: &str| {
        let own = after(prompt, &format!("{START}{role}\n")).map(|rest| rest.split(END).next().unwrap_or(rest));
        let foreign = || after(prompt, &format!("{role}<|end_header_id|>\n\n"));
        own.or_else(|| foreign().map(|rest| rest.split("<|eot_id|>").next().unwrap_or(rest)))
    };
    // A prompt that was cut at its beginning has no turn left to begin.
    Read { system: turn("system").unwrap_or_default(), user: turn("user").unwrap_or(prompt) }
}

fn after<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    text.find(beginning).map(|at| &text[at + beginning.len()..])
}
