use serde_json::{Value, json};

use super::*;

fn strict(text: impl AsRef<[u8]>) -> Result<Value, JsonError> {
    parse(text.as_ref(), Duplicates::Refused, MAX_DEPTH)
}

fn refusal(text: impl AsRef<[u8]>) -> String {
    strict(text).expect_err("this must be refused").to_string()
}

#[test]
fn ordinary_json_is_read_as_everywhere() {
    let text = r#" {"a": [1, -2.5, true, false, null, "x\n\u00e9\ud83d\ude00"], "b": {}} "#;
    let read = strict(text).unwrap();
    assert_eq!(read, json!({"a": [1, -2.5, true, false, null, "x\né😀"], "b": {}}));
    assert_eq!(read.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(strict("7").unwrap(), json!(7));
    assert_eq!(strict("\"\"").unwrap(), json!(""));
}

#[test]
fn numbers_keep_every_digit() {
    for text in [
        "0",
        "-0",
        "1.0",
        "1.10",
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "0.1000000000000000055511151231257827",
        "1e+5",
        "1e-400",
        "1e+999999999",
        "0e+0",
    ] {
        assert_eq!(serde_json::to_string(&strict(text).unwrap()).unwrap(), text);
    }
    // Only these lose their looks, never their value.
    assert_eq!(strict("1E5").unwrap().to_string(), "1e+5");
    assert_eq!(strict("1e05").unwrap().to_string(), "1e+05");
}

#[test]
fn numbers_that_are_none_in_rfc_8259_are_refused() {
    for text in [
        "01",
        "-01",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "-",
        "1e",
        "1e+",
        "0x10",
        "NaN",
        "Infinity",
        "-Infinity",
        "1_000",
        "--1",
        "1,0",
        "٣",
    ] {
        assert!(strict(text).is_err(), "{text}");
        assert!(strict(format!("[{text}]")).is_err() || text == "1,0", "{text}");
    }
}

#[test]
fn an_exponent_without_end_is_refused_and_a_huge_one_is_not() {
    assert!(strict("1e999999999999999").is_ok());
    assert!(strict("1e-000000000000000000000000000000000001").is_ok());
    assert!(refusal("[1e1000000000000000]").contains("exponent"));
    assert!(refusal(format!("1e-{}", "9".repeat(10_000))).contains("exponent"));
}

#[test]
fn a_member_twice_is_refused_after_unescaping_and_at_any_depth() {
    assert_eq!(refusal(r#"{"a":1,"a":2}"#), r#"the member "a" stands twice in one object at line 1, column 8"#);
    assert_eq!(
        refusal("{\"a\":1,\n \"\\u0061\":2}"),
        r#"the member "a" stands twice in one object at line 2, column 2"#
    );
    assert!(refusal(r#"[{"x":{"é":1,"\u00e9":1}}]"#).contains("twice"));
    // "é" in one code point and in two are two names: no normalisation.
    assert!(strict("{\"\u{e9}\":1,\"e\u{301}\":1}").is_ok());
    assert!(strict(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    assert!(!refusal(format!(r#"{{"{0}":1,"{0}":1}}"#, "secret".repeat(50))).contains(&"secret".repeat(10)));
}

#[test]
fn what_providers_send_may_have_a_member_twice_and_the_last_one_stands() {
    let read = parse(br#"{"a":1,"b":2,"a":3}"#, Duplicates::LastStands, MAX_DEPTH).unwrap();
    assert_eq!(read, json!({"a": 3, "b": 2}));
    assert_eq!(parse("\u{feff}[\"\\u0000\"]".as_bytes(), Duplicates::LastStands, 9).unwrap(), json!(["\0"]));
}

#[test]
fn strings_that_no_store_or_reader_can_hold_are_refused() {
    for text in [
        r#""\ud800""#,
        r#"{"s":"\ud800"}"#,
        r#"{"\udc00":1}"#,
        r#""\ud800\ud800 and more""#,
        r#""\ud800 and more text""#,
        r#""\udc00\ud800 and more text""#,
    ] {
        assert!(refusal(text).to_lowercase().contains("surrogate"), "{text}: {}", refusal(text));
    }
    assert!(refusal(r#"{"a":["x\u0000"]}"#).contains("U+0000"));
    assert!(refusal(r#"{"\u0000":1}"#).contains("U+0000"));
    assert!(refusal(b"\"\xff\"").contains("UTF-8"));
    assert!(refusal(b"\"\xed\xa0\x80\"").contains("UTF-8"), "a surrogate in UTF-8");
    assert!(refusal(b"\"\xc0\x80\"").contains("UTF-8"), "an overlong form");
    for text in [
        "\"\n\"",
        "\"\t\"",
        "\"\u{0}\"",
        "\"\u{1b}[31m\"",
        r#""\x41""#,
        r#""\u12g4""#,
        r#""\u+123""#,
        "'a'",
        "\"abc",
        "\"\\",
    ] {
        let refused = refusal(text);
        assert!(!refused.contains(char::is_control), "{refused:?}");
    }
    assert_eq!(strict("\"\u{7f}\u{feff}\u{ffff}\"").unwrap(), json!("\u{7f}\u{feff}\u{ffff}"));
}

#[test]
fn anything_beside_one_value_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{1:2}",
        "1 2",
        "{} {}",
        "{}x",
        "null,",
        "nul",
        "True",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "[}",
        "{]",
        ",",
        ":",
        "// c\n1",
        "/**/1",
        "\u{feff}1",
        "\u{a0}1",
        "1\u{c}",
        "{\"a\":1}\0",
    ] {
        assert!(strict(text).is_err(), "{text:?}");
    }
}

#[test]
fn nesting_is_allowed_up_to_the_limit_and_a_bomb_is_refused_at_it() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(strict(nested(MAX_DEPTH)).is_ok());
    assert!(refusal(nested(MAX_DEPTH + 1)).contains("deeper than 64"));
    assert!(refusal("[".repeat(5_000_000)).contains("line 1, column 65"));
    assert!(refusal("{\"a\":".repeat(1_000_000)).contains("deeper"));
    assert!(parse_stored(&nested(4 * MAX_DEPTH)).is_ok());
}

#[test]
fn an_error_names_the_place() {
    let error = strict("{\n  \"a\": 1,\n  \"é\": nope\n}").unwrap_err();
    assert_eq!((error.line, error.column), (3, 9));
    assert_eq!(strict("{\"a\":1} x").unwrap_err().column, 9);
    assert_eq!(strict("").unwrap_err().column, 1);
}

#[test]
fn an_object_with_the_private_name_of_serde_json_stays_an_object() {
    for name in ["$serde_json::private::Number", "$serde_json::private::RawValue"] {
        let text = format!("{{\"{name}\":\"1\"}}");
        let read = strict(&text).unwrap();
        assert!(read.is_object(), "{read:?}");
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(parse_stored(&read.to_string()).unwrap(), read);
    }
}
