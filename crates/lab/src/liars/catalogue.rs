//! The catalogue: every lie, and what verification must say of it. A test holds each row, and the page.

use onejob::contract::report::{Report, Verdict};

use super::lie::Lie;
use super::sight::{View, label};

/// What verification must say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// This check fails, and these words are in what it says.
    Fails(&'static str, &'static str),
    /// It passes, with these words in a note.
    Notes(&'static str),
    /// It comes to no end, with these words: neither proved nor disproved.
    Undecided(&'static str),
    /// It passes: nothing shows from outside.
    Nothing,
}

/// A row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The lie.
    pub lie: Lie,
    /// What the provider does.
    pub does: &'static str,
    /// What is said of it in each of [`View::ALL`].
    pub sees: [Sees; 3],
}

/// The same in every view.
const fn row(lie: Lie, does: &'static str, sees: Sees) -> Row {
    Row { lie, does, sees: [sees; 3] }
}

use Sees::{Fails, Notes, Nothing, Undecided};

/// All rows.
pub const CATALOGUE: &[Row] = &[
    row(
        Lie::InventsKeys,
        "adds keys of its own at the top",
        Fails("structure (json_object)", "does not name this key"),
    ),
    row(Lie::RenamesKeys, "renames a key", Fails("structure (text)", "required property")),
    row(Lie::Fences, "puts the JSON in a code fence", Fails("structure (text)", "code fence")),
    row(Lie::Prose, "puts prose before the JSON", Fails("structure (text)", "no JSON")),
    row(Lie::Thinks, "thinks aloud before the JSON", Fails("structure (text)", "no JSON")),
    row(
        Lie::JavaScript,
        "writes what Python and JavaScript read, and JSON does not",
        Fails("structure (text)", "no JSON"),
    ),
    row(Lie::NumbersAsStrings, "writes numbers as strings", Fails("structure (text)", "/residents")),
    row(Lie::EchoesThePrompt, "repeats the prompt before it answers", Fails("structure (text)", "no JSON")),
    row(
        Lie::DropsTheSchema,
        "loses the schema in translation, and prose is its success",
        Fails("structure (json_schema)", "no JSON"),
    ),
    row(
        Lie::RefusesTheSchema,
        "takes a subset of JSON Schema and refuses the rest",
        Fails("round trip (json_schema)", "invalid 400"),
    ),
    row(
        Lie::DropsKeywords,
        "drops keywords of the schema without a word",
        Fails("structure (json_schema)", "/landmarks"),
    ),
    row(
        Lie::OnlyConstrained,
        "writes what is wanted only where decoding is constrained; left to itself it invents keys until it is cut off",
        Fails("structure (json_object)", "cut the output off"),
    ),
    row(
        Lie::LeaksControlTokens,
        "leaks a control token into a value",
        Fails("structure (json_schema)", "control token"),
    ),
    row(Lie::RunsOn, "goes on after its turn, in a role of its own", Fails("structure (text)", "<|im_end|>")),
    row(Lie::DropsStop, "drops `stop`", Fails("structure (text)", "no JSON")),
    row(
        Lie::IgnoresTheLimit,
        "ignores `max_completion_tokens` and has a small limit of its own",
        Fails("structure (text)", "cut the output off"),
    ),
    row(Lie::RefusesTheLimit, "refuses `max_completion_tokens`", Fails("round trip (text)", "invalid 400")),
    row(Lie::CutsAsFinished, "cuts the answer off and says that it is finished", Fails("structure (text)", "no JSON")),
    row(Lie::EmptyContent, "answers with an empty text", Fails("structure (text)", "no JSON")),
    row(Lie::NoContent, "answers with no text", Fails("structure (text)", "output")),
    row(Lie::NoChoices, "answers with an empty list", Fails("structure (text)", "output")),
    row(Lie::RefusesTemperature, "refuses `temperature`", Fails("round trip (text)", "invalid 400")),
    row(Lie::IgnoresTemperature, "ignores `temperature`: its answers differ, and each is right", Nothing),
    row(Lie::DropsTheSystem, "drops the system prompt", Fails("system prompt", "not honoured")),
    row(
        Lie::MergesTheSystem,
        "puts the system prompt into the user's message, where its model does not heed it",
        Fails("system prompt", "not honoured"),
    ),
    row(Lie::FailsOnASystem, "answers 500 to a system prompt", Fails("round trip (text)", "status 500")),
    row(Lie::HidesASystem, "adds a system prompt of its own", Fails("renders: hidden prompt", "beside the task's own")),
    Row {
        lie: Lie::HasADefaultSystem,
        does: "adds one where none is given, and the task gives one",
        sees: [Fails("renders: token count", "another template"), Notes("goes away"), Notes("goes away")],
    },
    Row {
        lie: Lie::TwoBeginnings,
        does: "begins every prompt twice",
        sees: [Notes("1 more token"), Fails("renders: begins once", "2 times"), Nothing],
    },
    Row {
        lie: Lie::NoBeginning,
        does: "begins no prompt",
        sees: [Notes("1 fewer token"), Fails("renders: begins once", "0 times"), Nothing],
    },
    Row {
        lie: Lie::ForeignTemplate,
        does: "serves another model's chat template, whose control tokens are text to its own",
        sees: [
            Fails("renders: token count", "another template"),
            Fails("renders: template", "of text and no control token"),
            Fails("renders: hidden prompt", "hidden system prompt"),
        ],
    },
    Row {
        lie: Lie::ForeignTokenizer,
        does: "has another tokenizer",
        sees: [
            Fails("renders: token count", "another tokenizer"),
            Fails("renders: token count", "another tokenizer"),
            Nothing,
        ],
    },
    Row {
        lie: Lie::Injectable,
        does: "makes control tokens of what a user writes",
        sees: [
            Fails("renders: injection", "becomes control tokens"),
            Fails("renders: injection", "becomes control tokens"),
            Nothing,
        ],
    },
    Row {
        lie: Lie::CutsThePrompt,
        does: "cuts long prompts without a word",
        sees: [
            Fails("renders: token count", "a prompt that was cut"),
            Fails("renders: token count", "a prompt that was cut"),
            Fails("renders: grows", "cut without a word"),
        ],
    },
    row(
        Lie::CutsAfterCounting,
        "counts a long prompt whole and then cuts it at its end",
        Fails("renders: needle", "did not arrive"),
    ),
    row(Lie::CutsTheMiddle, "takes the middle out of a long prompt", Fails("renders: grows", "cut without a word")),
    row(Lie::SmallWindow, "has a smaller context window", Fails("round trip (text)", "invalid 400")),
    row(Lie::CountsNothing, "reports no tokens", Notes("how many tokens")),
    row(Lie::CountsTheSame, "reports the same count for every prompt", Fails("renders: grows", "cut without a word")),
    row(Lie::MangledText, "mangles what is not ASCII", Fails("rules (text)", "does not hold")),
    row(Lie::OtherModel, "answers as another model than was asked for", Notes("calls itself")),
    row(Lie::ModelsInTurn, "answers as one model and then as another", Fails("round trip: one model", "cheap-0")),
    Row {
        lie: Lie::UnderAnothersName,
        does: "lets another model answer, now and then, under the name that was asked for",
        sees: [
            Fails("renders: token count", "another tokenizer"),
            Fails("renders: token count", "another tokenizer"),
            Nothing,
        ],
    },
    row(Lie::NoModel, "does not say which model answered", Notes("which model")),
    row(
        Lie::SameAnswer,
        "answers every case with the same right-looking answer",
        Fails("rules (text)", "does not hold"),
    ),
    row(
        Lie::WrongFacts,
        "gives JSON of the right form that the business cannot use",
        Fails("rules (text)", "does not hold"),
    ),
    row(Lie::Flaky, "is right four times of five", Fails("structure (text)", "no JSON")),
    row(Lie::TooSlow, "is slower than the task's timeout", Fails("round trip (text)", "attempt_timeout")),
    row(Lie::ErrorInside, "answers 200 with an error inside", Fails("round trip (text)", "failed_there")),
    row(Lie::EmptyAnswer, "answers 200 with nothing", Fails("structure (text)", "has no response.output")),
    row(Lie::WebPage, "answers 200 with a web page", Fails("round trip (text)", "is no JSON")),
    row(Lie::Streams, "streams although nobody asked for it", Fails("round trip (text)", "is no JSON")),
    row(Lie::Redirects, "redirects to a page to sign in at", Fails("round trip (text)", "302")),
    row(Lie::Busy, "is busy: 429 and come back later", Undecided("429")),
];

impl Sees {
    /// Whether a report says this.
    ///
    /// # Errors
    ///
    /// What it says instead.
    pub fn holds(self, report: &Report) -> Result<(), String> {
        let failed = report.rows.iter().filter(|row| row.failed > 0);
        let told: Vec<String> =
            failed.map(|row| format!("{}: {}", label(row), row.detail.as_deref().unwrap_or_default())).collect();
        let holds = match self {
            Fails(name, words) => report.rows.iter().any(|row| {
                row.failed > 0
                    && label(row) == name
                    && row.detail.as_deref().is_some_and(|detail| detail.contains(words))
            }),
            Notes(words) => report.verdict() == Verdict::Passed && report.notes.iter().any(|note| note.contains(words)),
            Undecided(words) => {
                let mut undecided = report.rows.iter().filter(|row| row.undecided > 0);
                report.verdict() == Verdict::Undecided
                    && undecided.any(|row| row.detail.as_deref().is_some_and(|detail| detail.contains(words)))
            }
            Nothing => report.verdict() == Verdict::Passed,
        };
        match holds {
            true => Ok(()),
            false => {
                Err(format!("expected {self:?}, found {:?}: {told:#?}, notes {:#?}", report.verdict(), report.notes))
            }
        }
    }

    fn cell(self) -> String {
        match self {
            Fails(name, _) => name.to_owned(),
            Notes(_) => "passes, with a note".to_owned(),
            Undecided(_) => "undecided".to_owned(),
            Nothing => "nothing".to_owned(),
        }
    }
}

/// The catalogue as a table of a page.
pub fn table() -> String {
    let mut text =
        String::from("| a provider that … | tokenizer here | tokenizer pages | closed |\n|---|---|---|---|\n");
    for row in CATALOGUE {
        let cells = row.sees.map(Sees::cell);
        text.push_str(&format!("| {} | {} |\n", row.does, cells.join(" | ")));
    }
    text
}

/// What must be said of a lie in a view.
pub fn expected(lie: Lie, view: View) -> Option<Sees> {
    let row = CATALOGUE.iter().find(|row| row.lie == lie)?;
    let at = View::ALL.iter().position(|one| *one == view)?;
    Some(row.sees[at])
}
