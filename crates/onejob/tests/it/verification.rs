//! A provider proves itself: contracts verified over HTTP and by the command line, through the very path
//! that attempts take.

use serde_json::{Value, json};

use super::world::World;

const SCHEMA: &str = r#"{"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}"#;

/// A task whose one case makes both providers do as told.
async fn world(what: &Value, task: &str) -> World {
    let more = format!(
        "[tasks.city]\nproviders = [\"main\", \"backup\"]\nattempt_timeout = \"2s\"\ntries = 1\nbackoff = \"10ms\"\n{task}\n\
         [tasks.city.output]\nschema = \"city.json\"\nstrict = true\nrules = [\"output.city | length > 1\"]\n\
         [tasks.city.contract]\ncases = \"cases.toml\"\nrepeat = 2\nvalid_for = \"1h\"\n"
    );
    let files = [
        ("city.json", SCHEMA.to_owned()),
        (
            "cases.toml",
            format!(
                "[[case]]\nname = \"paris\"\ninput = {{ do = {} }}\nexpect = [\"output.city == 'Paris'\"]\n",
                toml(what)
            ),
        ),
    ];
    World::with_files("", &more, &files).await
}

/// A value as an inline table.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name} = {}", toml(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn paris() -> Value {
    json!({"output": {"city": "Paris"}})
}

async fn verify(world: &World, provider: &str) -> Value {
    let answer = world.post("/v1/contracts/verify", json!({"task": "city", "provider": provider})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// How the contract stands at a provider.
async fn standing(world: &World, provider: &str) -> Value {
    let answer = world.get(&format!("/v1/contracts?task=city&provider={provider}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let contracts = answer.json()["contracts"].as_array().unwrap().clone();
    assert_eq!(contracts.len(), 1, "{contracts:?}");
    contracts[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_gives_a_certificate_that_survives_a_restart() {
    let mut world = world(&paris(), "").await;
    assert_eq!(standing(&world, "backup").await["why_not"], "it was never verified");
    let report = verify(&world, "backup").await;
    assert_eq!(
        (&report["passed"], &report["task"], &report["provider"]),
        (&json!(true), &json!("city"), &json!("backup"))
    );
    let row =
        |check: &str| report["checks"].as_array().unwrap().iter().find(|row| row["check"] == check).unwrap().clone();
    for check in ["structure", "rules", "round trip"] {
        let row = row(check);
        assert_eq!((&row["case"], &row["passed"], &row["failed"]), (&json!("paris"), &json!(2), &json!(0)), "{row}");
    }
    for check in ["renders", "system prompt"] {
        assert!(row(check)["skipped"].is_string(), "{report}");
    }
    let certificate = &report["certificate"];
    assert!(certificate["id"].as_str().unwrap().starts_with("cert_"), "{certificate}");
    assert_eq!(certificate["detail"]["verified_by"], "request");
    let now = standing(&world, "backup").await;
    assert_eq!((&now["valid"], &now["why_not"], &now["running"]), (&json!(true), &Value::Null, &Value::Null));
    assert_eq!(now["certificate"]["id"], certificate["id"]);
    world.stop().await;
    world.start().await;
    assert_eq!(standing(&world, "backup").await["valid"], true);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_with_the_first_output_and_takes_the_certificate_back() {
    let mut world = world(&paris(), "").await;
    verify(&world, "backup").await;
    world.stop().await;
    world.write(
        "cases.toml",
        "[[case]]\nname = \"lyon\"\ninput = { do = { output = { city = \"Lyon\", mayor = \"X\" } } }\n",
    );
    world.start().await;
    assert!(standing(&world, "backup").await["why_not"].as_str().unwrap().contains("changed since it was verified"));
    let report = verify(&world, "backup").await;
    assert_eq!(
        (&report["passed"], &report["verdict"], &report["certificate"]),
        (&json!(false), &json!("failed"), &Value::Null)
    );
    let failed: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(|row| row["failed"] != 0).collect();
    assert_eq!(failed.len(), 1, "{report}");
    assert_eq!((&failed[0]["check"], &failed[0]["failed"]), (&json!("structure"), &json!(2)));
    assert!(failed[0]["detail"].as_str().unwrap().starts_with("at /mayor: "), "{}", failed[0]);
    assert_eq!(failed[0]["output"], r#"{"city":"Lyon","mayor":"X"}"#);
    let now = standing(&world, "backup").await;
    assert_eq!((&now["valid"], &now["last"]["passed"]), (&json!(false), &json!(false)));
    assert!(now["certificate"]["suspended"].is_object(), "{now}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_too_busy_decides_nothing() {
    let mut world = world(&paris(), "").await;
    verify(&world, "backup").await;
    world.stop().await;
    let refuses = json!({"first": {"status": 429}, "status": 429});
    world.write("cases.toml", &format!("[[case]]\nname = \"busy\"\ninput = {{ do = {} }}\n", toml(&refuses)));
    world.start().await;
    let report = verify(&world, "main").await;
    assert_eq!((&report["passed"], &report["verdict"]), (&json!(false), &json!("undecided")));
    assert!(standing(&world, "main").await["last"].is_null(), "it says nothing, so nothing is recorded");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_of_a_pair_at_a_time_and_others_see_how_far_it_is() {
    let world = world(&json!({"gate": "g", "output": {"city": "Paris"}}), "").await;
    let (first, ()) = tokio::join!(verify(&world, "backup"), async {
        let running = loop {
            let now = standing(&world, "backup").await;
            if !now["running"].is_null() && now["running"]["total"] != 0 {
                break now["running"].clone();
            }
        };
        assert_eq!((&running["done"], &running["total"]), (&json!(0), &json!(2)));
        let again = world.post("/v1/contracts/verify", json!({"task": "city", "provider": "backup"})).await;
        assert_eq!((again.status, again.problem().as_str()), (409, "verification-in-flight"));
        world.provider.open("g");
    });
    assert_eq!(first["passed"], true, "{first}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_no_round_trip_and_a_stop_ends_a_run_politely() {
    let mut world = world(&json!({"gate": "never", "output": {"city": "Paris"}}), "").await;
    let slow = tokio::join!(verify(&world, "backup")).0;
    let rows = slow["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["check"] == "round trip").unwrap();
    assert_eq!((&row["failed"], &row["detail"]), (&json!(2), &json!("no answer within the task's attempt_timeout")));
    let url = world.url();
    let hanging = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let body = r#"{"task": "city", "provider": "main"}"#;
        let answer = agent.post(format!("{url}/v1/contracts/verify")).content_type("application/json").send(body);
        answer.unwrap().body_mut().read_to_string().unwrap()
    });
    while standing(&world, "main").await["running"].is_null() {}
    let began = std::time::Instant::now();
    world.begin_stop().await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "a run does not hold up a stop");
    let answer: Value = serde_json::from_str(&hanging.await.unwrap()).unwrap();
    assert_eq!(answer["verdict"], "undecided", "{answer}");
    world.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wishes_that_make_no_sense_are_refused_with_a_reason() {
    let world = world(&paris(), "").await;
    for (body, status, problem) in [
        (json!({"task": "nothing", "provider": "main"}), 404, "no-such-task"),
        (json!({"task": "city", "provider": "elsewhere"}), 400, "invalid-request"),
        (json!({"task": "plain", "provider": "main"}), 409, "no-contract"),
        (json!({"task": "city"}), 400, "invalid-request"),
        (json!({"task": "city", "provider": "main", "more": 1}), 400, "invalid-request"),
    ] {
        let answer = world.post("/v1/contracts/verify", body.clone()).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{body}");
    }
    let providers = world.get("/v1/providers").await.json();
    assert_eq!(providers["providers"][0]["name"], "backup");
    assert_eq!(providers["providers"][1]["tasks"], json!(["city", "patient", "plain", "race"]));
    world.end().await;
}

/// Times and ids out of the way.
fn steady(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end();
        let end = &word[bare.len()..];
        let is_date = bare.len() == 10 && bare.bytes().filter(|b| *b == b'-').count() == 2;
        let is_time = bare.len() == 6 && bare.ends_with('Z') && bare.contains(':');
        match bare {
            _ if bare.starts_with("cert_") => format!("cert_…{}{end}", if bare.ends_with(',') { "," } else { "" }),
            _ if is_date => format!("YYYY-MM-DD{end}"),
            _ if is_time => format!("hh:mmZ{end}"),
            _ => word.to_owned(),
        }
    });
    words.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_a_matrix_and_exits_as_scripts_expect() {
    let bad = json!({"backup": {"output": {"city": "Lyon", "mayor": "X"}}, "main": {"output": {"city": "Paris"}}});
    let world = world(&bad, "").await;
    let said = world.onejob(&["verify", "city"]).await;
    assert_eq!(said.code, 1, "{} {}", said.out, said.err);
    insta::assert_snapshot!("matrix", steady(&said.out));
    let one = world.onejob(&["verify", "city", "main", "--json"]).await;
    assert_eq!(one.code, 0, "{} {}", one.out, one.err);
    let document: Value = serde_json::from_str(&one.out).unwrap();
    assert_eq!((&document["passed"], document["reports"].as_array().unwrap().len()), (&json!(true), 1));
    let contracts = world.onejob(&["contracts"]).await;
    assert_eq!(contracts.code, 0, "{}", contracts.err);
    insta::assert_snapshot!("contracts", steady(&contracts.out));
    let nothing = world.onejob(&["verify", "nothing"]).await;
    assert_eq!(
        (nothing.code, nothing.err.contains("there is no contract of \"nothing\"")),
        (6, true),
        "{}",
        nothing.err
    );
    world.end().await;
}
