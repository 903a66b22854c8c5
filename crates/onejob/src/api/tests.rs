//! docs/http.md says what the router and the table of problems say.

use std::collections::BTreeSet;

use super::problem::Kind;

const PAGE: &str = include_str!("../../../../docs/http.md");

#[test]
fn every_problem_stands_in_the_docs_with_its_status_and_no_other_does() {
    let section = PAGE.split("\n## ").find(|section| section.starts_with("Problems")).unwrap();
    let row = |line: &str| -> Option<(String, String)> {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.to_owned()))
    };
    let said: BTreeSet<(String, String)> = section.lines().filter_map(row).collect();
    let known: BTreeSet<(String, String)> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let (name, status, _) = kind.row();
            (name.to_owned(), status.as_u16().to_string())
        })
        .collect();
    assert_eq!(known.len(), Kind::ALL.len(), "two kinds have one name");
    assert_eq!(said, known);
}

#[test]
fn every_route_stands_in_the_docs() {
    let routes: Vec<&str> =
        include_str!("mod.rs").split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(routes.len() > 10, "{routes:?}");
    for route in routes {
        assert!(PAGE.contains(&format!(" {route}`")), "{route}");
    }
}
