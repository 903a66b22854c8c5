use serde_json::{Value, json};

use super::{Breach, OutputContract, Schema};
use crate::template::Rule;

fn contract(schema: Value, strict: bool, rules: &[&str]) -> OutputContract {
    OutputContract {
        schema: Some(Schema::compile(&schema).unwrap()),
        strict,
        allow_control_tokens: false,
        rules: rules.iter().map(|rule| ((*rule).to_owned(), Rule::compile(rule).unwrap())).collect(),
    }
}

fn summary() -> Value {
    json!({"type": "object", "required": ["bullets"], "properties": {"bullets": {"type": "array", "items": {"type": "string", "maxLength": 6}}}})
}

fn refused(contract: &OutputContract, output: Value) -> (String, String) {
    let violation = contract.accept(&json!({"max": 2}), output).unwrap_err();
    (violation.pointer, violation.message)
}

#[test]
fn without_a_contract_everything_passes() {
    assert_eq!(OutputContract::default().accept(&json!(1), json!("any")), Ok(json!("any")));
}

#[test]
fn an_output_that_matches_passes_unchanged() {
    let output = json!({"bullets": ["a"], "extra": 1});
    assert_eq!(contract(summary(), false, &[]).accept(&Value::Null, output.clone()), Ok(output));
}

#[test]
fn a_string_is_read_as_json_if_it_does_not_match_itself() {
    let text = json!(" {\"bullets\": [\"a\"], \"n\": 9007199254740993}\n");
    let accepted = contract(summary(), false, &[]).accept(&Value::Null, text).unwrap();
    assert_eq!(accepted.to_string(), r#"{"bullets":["a"],"n":9007199254740993}"#);
    let string = contract(json!({"type": "string"}), false, &[]).accept(&Value::Null, json!("5")).unwrap();
    assert_eq!(string, json!("5"));
}

#[test]
fn prose_and_fences_break_the_contract() {
    let contract = contract(summary(), false, &[]);
    assert!(refused(&contract, json!("```json\n{\"bullets\": []}\n```")).1.contains("code fence"));
    assert!(refused(&contract, json!("Sure! {\"bullets\": []}")).1.contains("no JSON"));
    assert!(refused(&contract, json!("{\"bullets\": [")).1.contains("no JSON"));
}

#[test]
fn a_violation_names_the_place_and_not_the_value() {
    let contract = contract(summary(), false, &["output.bullets | length < 2"]);
    let (pointer, message) = refused(&contract, json!({"bullets": ["ok", "hunter2 is secret"]}));
    assert_eq!(pointer, "/bullets/1");
    assert_eq!(message, "value is longer than 6 characters");
    assert_eq!(refused(&contract, json!({"bullets": "hunter2"})).1, r#"value is not of type "array""#);
    assert_eq!(refused(&contract, json!("{\"bullets\": \"hunter2\"}")).0, "/bullets");
    assert_eq!(refused(&contract, json!({})).1, r#""bullets" is a required property"#);
}

#[test]
fn strict_refuses_top_level_keys_of_the_models_own_invention() {
    let contract = contract(summary(), true, &[]);
    let (pointer, message) = refused(&contract, json!({"bullets": [], "a/b": 1}));
    assert_eq!(pointer, "/a~1b");
    assert!(message.contains("strict"));
    assert!(contract.accept(&Value::Null, json!({"bullets": []})).is_ok());
}

#[test]
fn strict_knows_what_the_schema_joins_in() {
    let schema = json!({"$defs": {"base": {"properties": {"a": {}}, "allOf": [{"$ref": "#"}]}}, "properties": {"own": {"properties": {"inner": {}}}},
        "allOf": [{"$ref": "#/$defs/base"}], "oneOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}, "required": ["c"]}],
        "then": {"properties": {"d": {}}}, "patternProperties": {"^x-": {}}});
    let schema = Schema::compile(&schema).unwrap();
    assert_eq!(schema.property_names().iter().collect::<Vec<_>>(), ["a", "b", "c", "d", "own"]);
    let contract = OutputContract { schema: Some(schema), strict: true, ..OutputContract::default() };
    assert!(contract.accept(&Value::Null, json!({"own": 1, "a": 1, "x-y": 2})).is_ok());
    assert!(contract.accept(&Value::Null, json!({"inner": 1})).is_err());
}

#[test]
fn rules_see_input_and_output() {
    let contract =
        contract(summary(), false, &["output.bullets | length >= 1", "output.bullets | length <= input.max"]);
    assert!(contract.accept(&json!({"max": 2}), json!("{\"bullets\": [\"a\", \"b\"]}")).is_ok());
    assert_eq!(
        refused(&contract, json!({"bullets": ["a", "b", "c"]})).1,
        "the rule `output.bullets | length <= input.max` does not hold"
    );
    let violation = contract.accept(&json!({}), json!({"bullets": ["a"]})).unwrap_err();
    assert_eq!(
        violation.message,
        "the rule `output.bullets | length <= input.max` cannot be evaluated: `input.max` is undefined"
    );
}

#[test]
fn a_schema_that_is_none_is_refused_with_a_reason() {
    let reason = |schema| Schema::compile(&schema).unwrap_err();
    assert!(reason(json!({"type": "objekt"})).contains("objekt"));
    assert!(reason(json!({"$ref": "https://example.com/s.json"})).contains("`https://example.com/s.json`"));
    assert!(reason(json!({"properties": {"a": {"$ref": "other.json#/x"}}})).contains("other.json"));
    assert!(reason(json!({"$ref": "#/$defs/nowhere"})).contains("leads nowhere"));
    assert!(reason(json!({"properties": {"a": {"pattern": "("}}})).contains("/properties/a/pattern"));
    assert!(reason(json!(5)).contains("no valid JSON Schema"));
}

#[test]
fn the_draft_is_the_one_that_the_schema_names() {
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": true});
    assert!(Schema::compile(&old).unwrap().check(&json!(5)).is_err());
    let new = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]});
    assert!(Schema::compile(&new).unwrap().check(&json!([1])).is_err());
    let seven = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]});
    assert!(Schema::compile(&seven).unwrap().check(&json!([1])).is_err());
}

#[test]
fn long_numbers_are_compared_exactly() {
    let schema =
        Schema::compile(&json!({"maximum": serde_json::from_str::<Value>("9007199254740992").unwrap()})).unwrap();
    assert!(schema.check(&serde_json::from_str("9007199254740993").unwrap()).is_err());
}

#[test]
fn data_in_a_schema_is_no_reference() {
    assert!(Schema::compile(&json!({"const": {"$ref": "https://example.com"}})).is_ok());
    assert!(Schema::compile(&json!({"properties": {"$ref": {"type": "string"}}})).is_ok());
}

fn breach(contract: &OutputContract, output: Value) -> Breach {
    contract.accept(&json!({"max": 2}), output).unwrap_err().breach
}

#[test]
fn a_violation_says_of_which_kind_it_is() {
    let contract = contract(summary(), true, &["output.bullets | length < 2"]);
    for (output, expected) in [
        (json!("Sure!"), Breach::NoJson),
        (json!("```json\n{\"bullets\": []}\n```"), Breach::Fence),
        (json!({"bullets": 7}), Breach::Shape),
        (json!({"bullets": [], "more": 1}), Breach::InventedKey),
        (json!("{\"bullets\": []}<|im_end|>"), Breach::ControlToken),
        (json!({"bullets": ["<eos>"]}), Breach::ControlToken),
        (json!({"bullets": ["a", "b"]}), Breach::Rule),
    ] {
        assert_eq!(breach(&contract, output.clone()), expected, "{output}");
    }
}

#[test]
fn control_tokens_are_named_with_their_place_unless_the_input_brought_them() {
    let contract = contract(json!({"type": "object"}), false, &[]);
    let leaks = json!({"a": ["fine", {"b/c": "done<|im_end|>"}]});
    let (pointer, message) = refused(&contract, leaks.clone());
    assert_eq!(pointer, "/a/1/b~1c");
    assert!(message.contains("`<|im_end|>`"), "{message}");
    assert!(contract.accept(&json!({"text": ["what is <|im_end|>?"]}), leaks.clone()).is_ok());
    let allowed = OutputContract { allow_control_tokens: true, ..contract };
    assert!(allowed.accept(&Value::Null, leaks).is_ok());
}

#[test]
fn markup_that_only_looks_like_a_control_token_is_none() {
    let contract = contract(json!({}), false, &[]);
    for fine in
        ["a <s>struck</s>", "<b>x</b> [INST", "if (a <| b)", "<|unknown|>", "price < 5 [1]", "</s> in the middle"]
    {
        assert!(contract.accept(&Value::Null, json!({"t": fine})).is_ok(), "{fine}");
    }
    for leak in ["The end.</s>", "<start_of_turn>user", "[/INST] {}", "x<|eot_id|>"] {
        assert!(contract.accept(&Value::Null, json!({"t": leak})).is_err(), "{leak}");
    }
}
