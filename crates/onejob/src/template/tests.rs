use serde_json::{Value, json};

use super::{Rule, Scope, Template};

fn number(text: &str) -> Value {
    Value::Number(text.parse().unwrap())
}

fn scope() -> Scope {
    Scope::new().with(
        "input",
        json!({"text": "Hi <b>", "size": 3, "tags": ["a", "b"], "none": null, "deep": {"z": 1, "a": {"m": [1]}}}),
    )
}

fn render(template: Value, scope: &Scope) -> Result<Option<Value>, String> {
    Template::compile(&template).unwrap().render(scope).map_err(|e| format!("{}: {e}", e.path))
}

fn value(template: Value, scope: &Scope) -> Value {
    render(template, scope).unwrap().unwrap()
}

#[test]
fn a_whole_expression_keeps_its_type() {
    let scope = scope();
    assert_eq!(value(json!("{{ input.size }}"), &scope), json!(3));
    assert_eq!(value(json!("{{input.tags}}"), &scope), json!(["a", "b"]));
    assert_eq!(value(json!("{{ input.none }}"), &scope), Value::Null);
    assert_eq!(value(json!("{{ input.size * 2 }}"), &scope), json!(6));
    assert_eq!(value(json!("{{ input.size > 2 }}"), &scope), json!(true));
    assert_eq!(value(json!("{{ input.tags[1] }}"), &scope), json!("b"));
    assert_eq!(value(json!("{{ input['tags'][-1] }}"), &scope), json!("b"));
    assert_eq!(value(json!("{{ {'b': 1, 'a': input.size} }}"), &scope).to_string(), r#"{"b":1,"a":3}"#);
}

#[test]
fn text_around_an_expression_makes_text() {
    let scope = scope();
    assert_eq!(value(json!("n={{ input.size }}"), &scope), json!("n=3"));
    assert_eq!(value(json!("{{ input.size }} "), &scope), json!("3 "));
    assert_eq!(value(json!("{{ input.size }}{{ input.size }}"), &scope), json!("33"));
    assert_eq!(value(json!("{% for t in input.tags %}{{ t }};{% endfor %}\n"), &scope), json!("a;b;\n"));
    assert_eq!(value(json!("{{ input.deep }} {{ true }}"), &scope), json!(r#"{"z":1,"a":{"m":[1]}} true"#));
    assert_eq!(value(json!("it is{{ ' big' if input.size > 9 }}"), &scope), json!("it is"));
}

#[test]
fn nothing_is_escaped() {
    let scope = scope();
    assert_eq!(value(json!("{{ input.text }}"), &scope), json!("Hi <b>"));
    assert_eq!(value(json!("say {{ input.text }}"), &scope), json!("say Hi <b>"));
    assert_eq!(value(json!("/v1/{{ 'a b/c?é' | urlencode }}"), &scope), json!("/v1/a%20b%2Fc%3F%C3%A9"));
    assert_eq!(value(json!("?{{ {'a': 1, 'b&': 'x y'} | urlencode }}"), &scope), json!("?a=1&b%26=x%20y"));
}

#[test]
fn a_plain_string_is_itself() {
    let plain = json!({"a": ["{ not }", "{# nor #}", 1, null, true], "b": "}}"});
    assert_eq!(value(plain.clone(), &Scope::new()), plain);
}

#[test]
fn an_undefined_expression_leaves_its_member_out() {
    let scope = scope();
    let template = json!({"a": "{{ input.nothing }}", "b": ["{{ input.no.thing }}", "{{ nobody }}", 1, "{{ input.x | upper }}"],
        "c": "{{ input.size if false }}", "d": "{{ 'x' ~ input.nothing }}", "e": "{{ input.tags[7] }}"});
    assert_eq!(value(template, &scope), json!({"b": [1]}));
    assert_eq!(render(json!("{{ input.nothing }}"), &scope), Ok(None));
}

#[test]
fn undefined_and_null_in_the_middle_of_text_are_errors() {
    let scope = scope();
    assert_eq!(
        render(json!({"a": ["", "x {{ input.nothing }}"]}), &scope).unwrap_err(),
        "/a/1: `input.nothing` is undefined"
    );
    assert_eq!(render(json!("x {{ input.no.thing | upper }}"), &scope).unwrap_err(), ": `input.no.thing` is undefined");
    assert!(render(json!("x {{ input.none }}"), &scope).unwrap_err().contains("null in the middle of text"));
    assert_eq!(value(json!("x {{ input.nothing | default('-') }}"), &scope), json!("x -"));
}

#[test]
fn numbers_come_back_as_they_were_written() {
    for text in [
        "9007199254740993",
        "0.1000000000000000055",
        "123456789012345678901234567890123456789012",
        "1e400",
        "-0",
        "1.50",
        "1E5",
        "18446744073709551615",
    ] {
        let scope = Scope::new().with("input", json!({"n": number(text), "in": {"deep": [number(text)]}}));
        assert_eq!(value(json!("{{ input.n }}"), &scope).to_string(), number(text).to_string());
        assert_eq!(value(json!("{{ input.in }}"), &scope).to_string(), format!(r#"{{"deep":[{}]}}"#, number(text)));
        assert_eq!(
            value(json!("{{ input.in if true }}"), &scope).to_string(),
            format!(r#"{{"deep":[{}]}}"#, number(text))
        );
        assert_eq!(
            value(json!("as {{ input.in | tojson }}"), &scope),
            json!(format!(r#"as {{"deep":[{}]}}"#, number(text)))
        );
    }
    for text in [
        "9007199254740993",
        "0.1000000000000000055",
        "123456789012345678901234567890123456789012",
        "1e400",
        "170141183460469231731687303715884105727",
    ] {
        let scope = Scope::new().with("n", number(text));
        assert_eq!(value(json!("{{ n if true }}"), &scope).to_string(), number(text).to_string());
        assert_eq!(value(json!("n: {{ n }}"), &scope), json!(format!("n: {}", number(text))));
    }
}

#[test]
fn ordinary_numbers_can_be_computed_with() {
    let scope = Scope::new()
        .with("n", number("1.50"))
        .with("big", number("9007199254740993"))
        .with("odd", number("0.1000000000000000055"));
    assert_eq!(value(json!("{{ n * 2 }}"), &scope), json!(3.0));
    assert_eq!(value(json!("{{ big + 1 }}"), &scope).to_string(), "9007199254740994");
    assert_eq!(value(json!("{{ odd | float < 1 }}"), &scope), json!(true));
    assert!(render(json!("{{ odd + 1 }}"), &scope).is_err());
}

#[test]
fn members_stay_in_their_order() {
    let scope = Scope::new().with("input", json!({"z": 1, "a": 2, "m": {"y": 1, "b": 2}}));
    assert_eq!(
        value(json!({"q": "{{ input }}", "c": 1}), &scope).to_string(),
        r#"{"q":{"z":1,"a":2,"m":{"y":1,"b":2}},"c":1}"#
    );
    assert_eq!(value(json!("{% for k in input %}{{ k }}{% endfor %}"), &scope), json!("zam"));
}

#[test]
fn a_syntax_error_is_told_with_its_place() {
    let error = Template::compile(&json!({"a": [1, "x {{ input. }}"]})).unwrap_err();
    assert_eq!(error.path, "/a/1");
    assert!(error.message.starts_with("not a template: "), "{error}");
}

#[test]
fn errors_quote_no_value() {
    let scope = Scope::new().with("input", json!({"s": "hunter2", "o": {"hunter2": 1}}));
    for template in [
        "{{ input.s + 1 }}",
        "{{ input.s | int }}",
        "{{ input.s() }}",
        "{{ input.o[input.s]() }}",
        "{{ input.s.x.y() }}",
        "a {{ input.s | round }}",
        "{{ input.s | batch(input.s) }}",
        "{{ range(input.s) }}",
        "{{ input.s | tojson(nope=1) }}",
        "{{ input.s | dictsort }}",
        "{{ input | attr(1,2) }}",
    ] {
        if let Err(message) = render(json!(template), &scope) {
            assert!(!message.contains("hunter2"), "{template}: {message}");
        }
    }
    assert!(!format!("{:?}", Template::compile(&json!("hunter2 {{ x }}")).unwrap()).contains("hunter2"));
}

#[test]
fn work_is_bounded() {
    let scope = Scope::new().with("input", json!({"list": vec![1; 10_000]}));
    let endless = "{% for a in input.list %}{% for b in input.list %}{{ b }}{% endfor %}{% endfor %}";
    assert_eq!(render(json!(endless), &scope).unwrap_err(), ": the template does more work than is allowed");
    assert!(render(json!("{{ 'x' * 999999999 }}"), &scope).is_err());
}

#[test]
fn a_megabyte_of_text_is_no_work() {
    let scope = Scope::new().with("input", json!({"text": "x".repeat(1 << 20), "many": vec!["word"; 100_000]}));
    assert_eq!(
        value(json!("Summarize: {{ input.text | trim | upper }}"), &scope).as_str().unwrap().len(),
        (1 << 20) + 11
    );
    assert_eq!(value(json!("{{ input.many | join(' ') }}"), &scope).as_str().unwrap().len(), 499_999);
    assert_eq!(value(json!("{{ input.many if true }}"), &scope).as_array().unwrap().len(), 100_000);
}

#[test]
fn no_template_reaches_outside_its_scope() {
    for template in
        ["{% include 'x' %}", "{% import '/etc/passwd' as x %}{{ x }}", "{% extends 'a' %}", "{{ debug() }}"]
    {
        assert!(
            Template::compile(&json!(template)).is_err()
                || render(json!(template), &scope()).is_err()
                || render(json!(template), &scope()) == Ok(None),
            "{template}"
        );
    }
}

#[test]
fn a_template_tells_the_names_that_it_reads() {
    let template =
        json!({"a": "{{ input.x }}", "b": ["t {{ chat.user ~ secret.k }}", "{{ range(3) }}"], "c": "{{ [job.id] }}"});
    let names: Vec<_> = Template::compile(&template).unwrap().names().into_iter().collect();
    assert_eq!(names, ["chat", "input", "job", "secret"]);
    assert_eq!(
        Rule::compile("output.a | length < input.b").unwrap().names().iter().collect::<Vec<_>>(),
        ["input", "output"]
    );
}

#[test]
fn the_later_of_two_equal_names_stands() {
    assert_eq!(value(json!("{{ a }}"), &Scope::new().with("a", json!(1)).with("a", json!(2))), json!(2));
}

#[test]
fn a_rule_holds_or_not() {
    let scope = Scope::new().with(
        "output",
        json!({"bullets": ["a", "b"], "price": number("0.1000000000000000055"), "big": number("1e400")}),
    );
    let holds = |rule: &str| Rule::compile(rule).unwrap().holds(&scope).map_err(|e| e.message);
    assert_eq!(holds("output.bullets | length <= 5"), Ok(true));
    assert_eq!(holds("output.bullets | length <= 1"), Ok(false));
    assert_eq!(holds("output.price < 0.2 and output.price > 0.05"), Ok(true));
    assert_eq!(holds("output.big > 5"), Ok(true));
    assert_eq!(holds("'a' in output.bullets and output.bullets == ['a', 'b']"), Ok(true));
    assert_eq!(holds("output.words | length <= 5"), Err("`output.words` is undefined".into()));
    assert_eq!(holds("output.words"), Err("`output.words` is undefined".into()));
    assert_eq!(holds("output.words is defined"), Ok(false));
    assert!(Rule::compile("output.bullets |").is_err());
    assert!(Rule::compile("").is_err());
}

#[test]
fn filters_and_tests_are_known_before_anything_is_sent() {
    let reason = |text: &str| Template::compile(&json!(text)).map_err(|e| e.message).err();
    assert_eq!(reason("{{ input.x | uper }}"), Some("there is no filter `uper`".into()));
    assert_eq!(reason("a | b {{ input.x | upper|lowr }}"), Some("there is no filter `lowr`".into()));
    assert_eq!(reason("{{ input.x is not defind }}"), Some("there is no test `defind`".into()));
    assert_eq!(reason("a {% if input.x is strin %}x{% endif %}"), Some("there is no test `strin`".into()));
    for good in [
        "{{ input.x | default('a | b is c \\' | d') }}",
        "this is text | so {{ input.is }}",
        "{{ 1 is divisibleby(1) or input.x is none }}",
        "{% raw %}{{ x | nothing }}{% endraw %}",
        "{{ input.x | tojson | length }}",
        "{{ input.a if input.a is string and input.b is not none }}",
        "{{ x | selectattr('content', 'defined') }}",
    ] {
        assert_eq!(reason(good), None, "{good}");
    }
    assert_eq!(Rule::compile("output | lenght > 1").unwrap_err().message, "there is no filter `lenght`");
}

fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any_number().prop_map(|text| number(&text)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_number() -> &'static str {
    r"-?(0|[1-9][0-9]{0,42})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?"
}

#[test]
fn a_number_between_two_shortest_texts_comes_back_as_it_was_written() {
    for text in ["56300000000.00003e4", "563000000000000.3", "563000000000000.2"] {
        let scope = Scope::new().with("v", json!({"n": number(text)}));
        let after = value(json!("{{ v.n if true }}"), &scope).to_string();
        assert!(super::value::same_number(&after, text), "{text} became {after}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_is_passed_on_comes_out_as_it_went_in(json in any_json()) {
        let scope = Scope::new().with("v", serde_json::json!({"in": json}));
        let text = json.to_string();
        proptest::prop_assert_eq!(&value(json!("{{ v.in }}"), &scope).to_string(), &text);
        proptest::prop_assert_eq!(value(json!("{{ v if true }}"), &scope).to_string(), format!(r#"{{"in":{text}}}"#));
        proptest::prop_assert_eq!(value(json!("{{ v | tojson }}"), &scope), json!(format!(r#"{{"in":{text}}}"#)));
    }

    #[test]
    fn a_number_that_an_expression_has_touched_is_still_the_same_number(text in any_number()) {
        let scope = Scope::new().with("v", json!({"n": number(&text)}));
        let after = value(json!("{{ v.n if true }}"), &scope).to_string();
        proptest::prop_assert!(super::value::same_number(&after, &text), "{} became {}", text, after);
    }

    #[test]
    fn no_text_stops_the_compiler(text in ".*", code in r#"[a-z0-9 |.'"(){}%\[\]~+-]*"#) {
        let _ = Template::compile(&json!(text));
        let _ = Template::compile(&json!(format!("{{{{{code}}}}}"))).map(|template| template.render(&scope()));
        let _ = Rule::compile(&code).map(|rule| rule.holds(&scope()));
    }
}
