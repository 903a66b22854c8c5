//! Each lying provider is caught by the check that is named for it, and an honest one passes.

use onejob::contract::report::Verdict;
use onejob_lab::liars::Lie;
use onejob_lab::liars::catalogue::{CATALOGUE, expected, table};
use onejob_lab::liars::sight::{View, look};

async fn hold(lie: Lie) {
    let seen = look(lie).await.unwrap();
    assert_eq!(seen.len(), View::ALL.len());
    let wrong = seen.iter().filter_map(|(view, report, is_certified)| {
        let wrong = expected(lie, *view).expect("not in the catalogue").holds(report).err();
        let certified_wrongly =
            (*is_certified != (report.verdict() == Verdict::Passed)).then(|| "certificate".to_owned());
        wrong.or(certified_wrongly).map(|wrong| format!("{view:?}: {wrong}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_provider_passes_however_it_is_looked_at() {
    for (view, report, is_certified) in look(Lie::None).await.unwrap() {
        assert_eq!(report.verdict(), Verdict::Passed, "{view:?}: {:#?} {:#?}", report.rows, report.notes);
        assert!(is_certified, "{view:?}");
        assert!(report.notes.is_empty(), "{view:?}: {:?}", report.notes);
    }
}

/// One test for each row of the catalogue, and one that none is missing.
macro_rules! rows {
    ($($name:ident: $lie:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                hold(Lie::$lie).await;
            }
        )*

        #[test]
        fn every_row_of_the_catalogue_has_a_test() {
            let tested = [$(Lie::$lie),*];
            let listed: Vec<Lie> = CATALOGUE.iter().map(|row| row.lie).collect();
            assert_eq!(listed, tested);
        }
    };
}

rows! {
    invented_keys_are_caught: InventsKeys,
    renamed_keys_are_caught: RenamesKeys,
    code_fences_are_caught: Fences,
    prose_around_json_is_caught: Prose,
    thinking_aloud_is_caught: Thinks,
    almost_json_is_caught: JavaScript,
    numbers_as_strings_are_caught: NumbersAsStrings,
    an_echo_of_the_prompt_is_caught: EchoesThePrompt,
    a_dropped_schema_is_caught: DropsTheSchema,
    a_refused_schema_is_caught: RefusesTheSchema,
    dropped_keywords_of_a_schema_are_caught: DropsKeywords,
    what_only_constrained_decoding_hides_is_caught: OnlyConstrained,
    leaked_control_tokens_are_caught: LeaksControlTokens,
    a_role_of_its_own_after_the_answer_is_caught: RunsOn,
    a_dropped_stop_is_caught: DropsStop,
    an_ignored_limit_is_caught: IgnoresTheLimit,
    a_refused_limit_is_caught: RefusesTheLimit,
    a_cut_that_is_called_an_end_is_caught: CutsAsFinished,
    an_empty_text_is_caught: EmptyContent,
    a_missing_text_is_caught: NoContent,
    an_empty_list_is_caught: NoChoices,
    a_refused_temperature_is_caught: RefusesTemperature,
    an_ignored_temperature_shows_in_nothing: IgnoresTemperature,
    a_dropped_system_prompt_is_caught: DropsTheSystem,
    a_merged_system_prompt_is_caught: MergesTheSystem,
    a_failure_at_system_prompts_is_caught: FailsOnASystem,
    a_hidden_system_prompt_is_caught: HidesASystem,
    a_default_system_prompt_is_noted: HasADefaultSystem,
    a_second_beginning_is_caught: TwoBeginnings,
    a_missing_beginning_is_caught: NoBeginning,
    a_foreign_template_is_caught: ForeignTemplate,
    a_foreign_tokenizer_is_caught: ForeignTokenizer,
    control_tokens_from_user_text_are_caught: Injectable,
    a_cut_prompt_is_caught: CutsThePrompt,
    a_prompt_that_is_cut_after_counting_is_caught: CutsAfterCounting,
    a_prompt_without_its_middle_is_caught: CutsTheMiddle,
    a_small_window_is_caught: SmallWindow,
    missing_counts_are_noted: CountsNothing,
    made_up_counts_are_caught: CountsTheSame,
    mangled_text_is_caught: MangledText,
    another_model_is_noted: OtherModel,
    models_in_turn_are_caught: ModelsInTurn,
    another_model_under_the_same_name_is_caught_by_its_tokenizer: UnderAnothersName,
    a_nameless_model_is_noted: NoModel,
    a_canned_answer_is_caught: SameAnswer,
    json_that_is_of_no_use_is_caught: WrongFacts,
    right_four_times_of_five_is_caught: Flaky,
    an_answer_after_the_timeout_is_caught: TooSlow,
    an_error_inside_a_success_is_caught: ErrorInside,
    an_empty_success_is_caught: EmptyAnswer,
    a_web_page_is_caught: WebPage,
    an_unwanted_stream_is_caught: Streams,
    a_redirect_is_caught: Redirects,
    a_busy_provider_is_left_undecided: Busy,
}

const PAGE: &str = "docs/lies.md";
const BEGIN: &str = "<!-- printed from crates/lab by `ONEJOB_BLESS=1 cargo test -p onejob-lab the_page_of_lies` -->\n";
const END: &str = "<!-- end of the print -->\n";

#[test]
fn the_page_of_lies_has_the_catalogue() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page says where the catalogue goes");
    let (_, after) = rest.split_once(END).expect("the page says where the catalogue ends");
    let expected = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if page != expected && std::env::var_os("ONEJOB_BLESS").is_some() {
        std::fs::write(&file, &expected).unwrap();
        return;
    }
    assert!(page == expected, "{PAGE} is not what the catalogue says; ONEJOB_BLESS=1 writes it anew");
}
