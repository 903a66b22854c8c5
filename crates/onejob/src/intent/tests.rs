use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::json::{Duplicates, MAX_DEPTH, parse};

fn read(text: &str) -> Value {
    parse(text.as_bytes(), Duplicates::Refused, MAX_DEPTH).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The canonical text of a value alone.
fn form(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn form_of(text: &str) -> String {
    form(&read(text))
}

fn hex(digest: Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The vectors were made by another program, in another language.
#[test]
fn the_canonical_form_agrees_with_the_vectors() {
    let vectors = read(include_str!("vectors.json"));
    assert_eq!(vectors["version"].as_u64(), Some(u64::from(CANONICAL_VERSION)));
    let intents = vectors["intents"].as_array().unwrap();
    assert!(intents.len() > 15);
    for vector in intents {
        let text = |name: &str| vector[name].as_str().unwrap();
        let input = read(text("input"));
        let provider = vector["provider"].as_str();
        assert_eq!(canonical(text("task"), &input, provider), text("canonical"), "{}", text("name"));
        let intent = Intent::new(text("task"), &input, provider);
        assert_eq!(hex(intent.fingerprint.digest), text("sha256"), "{}", text("name"));
        assert_eq!(intent.fingerprint.version, CANONICAL_VERSION);
        assert_eq!(form_of(text("canonical")), text("canonical"), "{} is no fixpoint", text("name"));
    }
}

#[test]
fn keys_agree_with_the_vectors() {
    let vectors = read(include_str!("vectors.json"));
    let keys = vectors["keys"].as_array().unwrap();
    assert!(keys.len() > 25);
    for vector in keys {
        let lines: Vec<&[u8]> =
            vector["lines"].as_array().unwrap().iter().map(|l| l.as_str().unwrap().as_bytes()).collect();
        let key = parse_key(lines.iter().copied());
        assert_eq!(key.as_ref().ok().map(|k| &**k), vector["key"].as_str(), "{lines:?}");
        assert_eq!(key == Err(KeyError::Missing), lines.is_empty(), "{lines:?}: {key:?}");
    }
}

#[test]
fn a_key_that_is_refused_is_not_repeated_in_the_message() {
    let error = parse_key([b"topsecret value".as_slice()]).unwrap_err();
    insta::assert_snapshot!(error, @r#"the Idempotency-Key has a character that is not allowed; expected 1 to 255 visible ASCII characters without ", \ and the comma, bare or in double quotes"#);
    assert!(matches!(parse_key([b"\xff".as_slice()]), Err(KeyError::Invalid(_))));
}

#[test]
fn r3_an_intent_keeps_what_the_caller_wrote() {
    let intent = Intent::new("t", &read(r#"{"z": 1.0, "a": 18446744073709551616}"#), Some("backup"));
    assert_eq!(&*intent.input, r#"{"z":1.0,"a":18446744073709551616}"#);
    assert_eq!((&*intent.task, intent.provider.as_deref()), ("t", Some("backup")));
}

#[test]
fn r2_task_input_and_provider_each_make_another_intent() {
    let prints = [
        Intent::new("t", &json!({}), None),
        Intent::new("u", &json!({}), None),
        Intent::new("t", &json!([]), None),
        Intent::new("t", &json!({"a": null}), None),
        Intent::new("t", &json!(null), None),
        Intent::new("t", &json!({}), Some("p")),
        Intent::new("t", &json!({}), Some("")),
        Intent::new("t", &json!({}), Some("null")),
    ]
    .map(|intent| intent.fingerprint);
    for (i, a) in prints.iter().enumerate() {
        assert!(prints.iter().skip(i + 1).all(|b| a != b), "number {i} is another one too");
    }
}

#[test]
fn an_object_with_the_private_name_of_serde_json_is_not_its_number() {
    let object = read(r#"{"$serde_json::private::Number":"1"}"#);
    assert_eq!(form(&object), r#"{"$serde_json::private::Number":"1"}"#);
    assert_ne!(Intent::new("t", &object, None).fingerprint, Intent::new("t", &json!(1), None).fingerprint);
    assert_eq!(differences(("t", &object, None), ("t", &json!(1), None)), ["/input"]);
}

#[test]
fn numbers_that_are_far_away_cost_no_more_than_their_text() {
    let long = "7".repeat(200_000);
    assert!(form_of(&format!("{long}e-999999999999999")).len() < long.len() + 30);
    assert!(form_of(&format!("0.{long}e999999999999999")).len() < long.len() + 30);
    assert_eq!(form_of("1e999999999999999"), "1e+999999999999999");
    // What the parser refuses stays itself, so that it cannot meet another number's form.
    let foreign = Value::Number(serde_json::from_str("1e99999999999999999999").unwrap());
    assert_eq!(form(&foreign), "1e+99999999999999999999");
}

#[test]
fn numbers_that_fit_a_double_are_written_as_rfc_8785_writes_them() {
    // From the RFC's appendix B: the shortest digits of the double, and their form.
    for (text, expected) in [
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("9007199254740992", "9007199254740992"),
        ("295147905179352830000", "295147905179352830000"),
        ("9.999999999999997e22", "9.999999999999997e+22"),
        ("1E+23", "1e+23"),
        ("1.0000000000000001e23", "1.0000000000000001e+23"),
        ("999999999999999700000", "999999999999999700000"),
        ("999999999999999900000", "999999999999999900000"),
        ("1e21", "1e+21"),
        ("9.999999999999997e-7", "9.999999999999997e-7"),
        ("0.000001", "0.000001"),
        ("333333333.33333329", "333333333.33333329"),
        ("-0.0000033333333333333333", "-0.0000033333333333333333"),
    ] {
        assert_eq!(form_of(text), expected);
    }
}

#[test]
fn differences_are_pointers_without_values() {
    let a = read(r#"{"text":"secret","n":1,"same":[1,2],"list":[1,2,3],"a/b":{"m~n":1},"gone":null,"":0}"#);
    let b = read(r#"{"text":"other","n":1.0,"same":[1e0,2.0],"list":[1,5],"a/b":{"m~n":2},"new":null,"":1}"#);
    assert_eq!(
        differences(("t", &a, None), ("u", &b, Some("p"))),
        [
            "/task",
            "/input/text",
            "/input/list/1",
            "/input/list/2",
            "/input/a~1b/m~0n",
            "/input/gone",
            "/input/",
            "/input/new",
            "/provider"
        ]
    );
    assert_eq!(differences(("t", &a, Some("p")), ("t", &a, Some("p"))), [""; 0]);
    assert_eq!(differences(("t", &json!({}), None), ("t", &json!([]), None)), ["/input"]);
}

#[test]
fn at_most_twenty_differences_are_named() {
    let many: Vec<u32> = (0..50).collect();
    let found = differences(("t", &json!({"x": many}), None), ("u", &json!({"x": []}), Some("p")));
    assert_eq!(found.len(), 20);
    assert_eq!((found[0].as_str(), found[19].as_str()), ("/task", "/input/x/18"));
}

// What follows holds for all values, so it is asked of many that nobody chose.

/// A number's text, in every form that RFC 8259 allows, near the places where the layout changes.
fn number_text() -> impl Strategy<Value = String> {
    let fraction = prop_oneof![Just(String::new()), "[0-9]{1,12}".prop_map(|f| format!(".{f}"))];
    let exponent = prop_oneof![
        3 => Just(String::new()),
        3 => (-30i64..30).prop_map(|e| format!("e{e}")),
        1 => (0u64..40).prop_map(|e| format!("E+0{e}")),
        1 => (-999_999_999_999i64..999_999_999_999).prop_map(|e| format!("e{e}")),
    ];
    (any::<bool>(), "0|[1-9][0-9]{0,24}|[1-9]0{0,24}", fraction, exponent).prop_map(
        |(minus, whole, fraction, exponent)| format!("{}{whole}{fraction}{exponent}", if minus { "-" } else { "" }),
    )
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number_text().prop_map(|text| read(&text)),
        prop_oneof!["[ab\\\\\"/\u{1}\n\u{e9}\u{301}😀\u{ffff}]{0,6}", "\\PC{0,8}"].prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let name = prop_oneof!["[ab~/]{0,2}", "[\u{e000}-\u{ffff}😀é]{1,2}"];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((name, inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value in other words: members turned round, numbers with another exponent, white space
/// and escapes.
fn reworded(value: &Value, seed: u64) -> String {
    let space = [" ", "\n\t", "", "\r\n"][(seed % 4) as usize];
    let string = |text: &str| -> String {
        if seed.is_multiple_of(3) {
            return Value::from(text).to_string();
        }
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
        format!("\"{}\"", units.collect::<String>())
    };
    match value {
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::String(text) => string(text),
        Value::Number(number) => same_number_otherwise(number.as_str(), seed),
        Value::Array(elements) => {
            let elements = elements.iter().map(|e| reworded(e, seed.rotate_left(7))).collect::<Vec<_>>();
            format!("[{space}{}{space}]", elements.join(&format!("{space},")))
        }
        Value::Object(members) => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(name, v)| format!("{}{space}:{}", string(name), reworded(v, seed.rotate_left(9))))
                .collect();
            let turn = seed as usize % members.len().max(1);
            members.rotate_left(turn);
            if seed.is_multiple_of(2) {
                members.reverse();
            }
            format!("{{{}{space}}}", members.join(","))
        }
    }
}

fn same_number_otherwise(text: &str, seed: u64) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().unwrap();
    let zeros = (seed % 5) as usize;
    match mantissa.split_once('.') {
        Some((whole, fraction)) => format!("{whole}.{fraction}{}E{exponent}", "0".repeat(zeros)),
        None if mantissa.trim_start_matches('-') == "0" => format!("{mantissa}.0e{exponent}"),
        None => format!("{mantissa}{}e{}", "0".repeat(zeros), exponent - zeros as i64),
    }
}

/// An exact comparison that shares nothing with the code under test: both numbers as one integer
/// times one power of ten, as strings of digits.
fn equal_by_arithmetic(a: &str, b: &str) -> bool {
    fn integer_and_power(text: &str) -> (bool, Vec<u8>, i64) {
        let lower = text.to_lowercase();
        let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
        let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i64);
        let digits = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|d| *d == b'0').collect();
        (text.starts_with('-'), digits, exponent.parse::<i64>().unwrap() - places)
    }
    let ((a_minus, mut a, a_power), (b_minus, mut b, b_power)) = (integer_and_power(a), integer_and_power(b));
    if a.is_empty() || b.is_empty() {
        return a.is_empty() && b.is_empty();
    }
    // Bring both to the smaller power; if that takes more digits than either has, they differ.
    let shift = a_power - b_power;
    if shift.unsigned_abs() > 200 {
        return false;
    }
    if shift > 0 { &mut a } else { &mut b }.extend(std::iter::repeat_n(b'0', shift.unsigned_abs() as usize));
    a_minus == b_minus && a == b
}

/// Equality of values that knows nothing of the canonical form.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => equal_by_arithmetic(a.as_str(), b.as_str()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        (a, b) => a == b,
    }
}

/// The value with one leaf or member changed a little.
fn nudged(value: &Value, at: usize) -> Value {
    match value {
        Value::Null => json!(0),
        Value::Bool(it) => json!(!it),
        Value::String(text) => json!(format!("{text}.")),
        Value::Number(number) => {
            let text = number.as_str();
            let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
            let point = if mantissa.contains('.') { "" } else { "." };
            read(&format!("{mantissa}{point}0000000000000000000000000001e{exponent}"))
        }
        Value::Array(elements) if elements.is_empty() => json!([[]]),
        Value::Array(elements) => {
            let mut elements = elements.clone();
            let at = at % elements.len();
            elements[at] = nudged(&elements[at], at / 3);
            Value::Array(elements)
        }
        Value::Object(members) if members.is_empty() => json!({"": null}),
        Value::Object(members) => {
            let at = at % members.len();
            let members: Map<_, _> = members
                .iter()
                .enumerate()
                .map(|(i, (name, v))| (name.clone(), if i == at { nudged(v, at / 3) } else { v.clone() }))
                .collect();
            Value::Object(members)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_same_value_in_other_words_has_the_same_form(value in value(), seed: u64) {
        let other = reworded(&value, seed);
        prop_assert_eq!(form(&value), form_of(&other), "{}", other);
        prop_assert!(differences(("t", &value, None), ("t", &read(&other), None)).is_empty());
    }

    #[test]
    fn r2_two_values_share_a_form_only_if_they_are_equal(a in value(), b in value(), at: usize) {
        prop_assert_eq!(form(&a) == form(&b), equal(&a, &b));
        let near = nudged(&a, at);
        prop_assert_ne!(form(&a), form(&near));
        let places = differences(("t", &a, None), ("t", &near, None));
        prop_assert_eq!(places.len(), 1, "{:?}", places);
    }

    #[test]
    fn two_numbers_share_a_form_only_if_they_are_equal(a in number_text(), b in number_text(), zeros in 0usize..30) {
        prop_assert_eq!(form_of(&a) == form_of(&b), equal_by_arithmetic(&a, &b));
        let form = form_of(&a);
        prop_assert!(equal_by_arithmetic(&a, &form), "{} became {}", a, form);
        let shifted = same_number_otherwise(read(&a).to_string().as_str(), zeros as u64);
        prop_assert_eq!(form_of(&shifted), form);
    }

    #[test]
    fn the_canonical_form_is_its_own(value in value(), task in "\\PC{0,9}", provider in proptest::option::of("\\PC{0,9}")) {
        let text = canonical(&task, &value, provider.as_deref());
        let again = read(&text);
        prop_assert_eq!(form(&again), text);
        prop_assert!(equal(&again["input"], &value));
        prop_assert_eq!(again["task"].as_str(), Some(&*task));
        prop_assert_eq!(again["provider"].as_str(), provider.as_deref());
    }

    #[test]
    fn a_difference_points_at_something_that_differs(a in value(), b in value()) {
        let places = differences(("t", &a, None), ("t", &b, None));
        prop_assert_eq!(places.is_empty(), equal(&a, &b));
        for place in places {
            let inside = place.strip_prefix("/input").unwrap();
            match (a.pointer(inside), b.pointer(inside)) {
                (Some(a), Some(b)) => prop_assert!(!equal(a, b)),
                (None, None) => prop_assert!(false, "{} is nowhere", place),
                (Some(_), None) | (None, Some(_)) => {}
            }
        }
    }

    #[test]
    fn a_key_is_taken_exactly_when_all_its_bytes_are_allowed(bytes in vec(prop_oneof![4 => 0x21u8..0x7f, 1 => any::<u8>()], 0..300), quoted: bool) {
        let line = if quoted { [b"\"".as_slice(), &bytes, b"\""].concat() } else { bytes.clone() };
        let allowed = |b: &u8| (0x21..=0x7e).contains(b) && !b"\"\\,".contains(b);
        // A bare value that looks quoted is a quoted one.
        let inner = match &*bytes {
            [b'"', inner @ .., b'"'] if !quoted => inner,
            all => all,
        };
        let good = (1..=255).contains(&inner.len()) && inner.iter().all(allowed);
        match parse_key([&*line]) {
            Ok(key) => prop_assert!(good && key.as_bytes() == inner),
            Err(error) => prop_assert!(!good && matches!(error, KeyError::Invalid(_))),
        }
    }
}
