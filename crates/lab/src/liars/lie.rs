//! What a provider can do wrong while it looks right.

/// A lie, or none. Each is one deviation in the path of an otherwise honest server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the catalogue says what each does")]
pub enum Lie {
    None,
    // The form of the output.
    InventsKeys,
    RenamesKeys,
    Fences,
    Prose,
    Thinks,
    JavaScript,
    NumbersAsStrings,
    EchoesThePrompt,
    DropsTheSchema,
    RefusesTheSchema,
    DropsKeywords,
    OnlyConstrained,
    LeaksControlTokens,
    RunsOn,
    DropsStop,
    // The end of the output.
    IgnoresTheLimit,
    RefusesTheLimit,
    CutsAsFinished,
    EmptyContent,
    NoContent,
    NoChoices,
    // Parameters.
    RefusesTemperature,
    IgnoresTemperature,
    // The system prompt.
    DropsTheSystem,
    MergesTheSystem,
    FailsOnASystem,
    HidesASystem,
    HasADefaultSystem,
    // Template and tokens.
    TwoBeginnings,
    NoBeginning,
    ForeignTemplate,
    ForeignTokenizer,
    Injectable,
    CutsThePrompt,
    CutsAfterCounting,
    CutsTheMiddle,
    SmallWindow,
    CountsNothing,
    CountsTheSame,
    MangledText,
    // Who answers.
    OtherModel,
    ModelsInTurn,
    UnderAnothersName,
    NoModel,
    // What it says.
    SameAnswer,
    WrongFacts,
    Flaky,
    // Whether it answers.
    TooSlow,
    ErrorInside,
    EmptyAnswer,
    WebPage,
    Streams,
    Busy,
    Redirects,
}
