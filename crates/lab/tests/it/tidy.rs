//! The house rules that a compiler does not know: who may use whom, where SQL stands, how long a
//! file may be, what lies about unused, and whether the pages name what is there.

use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 500;

/// Files that may be longer, and why.
const LONGER: [(&str, &str); 1] = [("crates/core/src/model.rs", "tests only: all rules asked of one exploration")];

/// A folder and the words that must not stand in its code.
const FORBIDDEN: [(&str, &[&str]); 8] = [
    ("crates/onejob/src", &["onejob_lab"]),
    ("crates/onejob/src/store", &["crate::provider", "crate::engine", "crate::api", "crate::cli", "crate::contract"]),
    ("crates/onejob/src/provider", &["crate::store", "crate::engine", "crate::api", "crate::cli"]),
    ("crates/onejob/src/contract", &["crate::api", "crate::cli", "rusqlite", "tokio_postgres"]),
    (
        "crates/onejob/src/engine",
        &["crate::api", "crate::cli", "rusqlite", "tokio_postgres", "store::sqlite", "store::memory"],
    ),
    (
        "crates/onejob/src/api",
        &["crate::provider", "crate::cli", "rusqlite", "tokio_postgres", "store::sqlite", "store::memory"],
    ),
    // Of the store it asks one thing: whether a URL of a database can be read.
    ("crates/onejob/src/config", &["rusqlite", "tokio_postgres", "crate::engine", "crate::api", "crate::cli"]),
    ("crates/core/src", &["std::time", "std::net", "std::thread", "std::env", "std::fs", "std::io", "async "]),
];

const SQL: [&str; 5] = ["SELECT ", "INSERT INTO", "DELETE FROM", "CREATE TABLE", "UPDATE jobs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below a folder with that ending, as paths from the root with `/` between.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                let inside = path.strip_prefix(root()).unwrap();
                found.push(inside.iter().map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join("/"));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} holds no .{ending}");
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("crates/lab/")
}

/// The lines of a file that are code, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(i, line)| (i + 1, line))
}

#[test]
fn core_depends_on_nothing() {
    let manifest = read("crates/core/Cargo.toml");
    assert!(!manifest.contains("dependencies"), "{manifest}");
}

#[test]
fn the_product_knows_nothing_of_the_laboratory() {
    assert!(!read("crates/onejob/Cargo.toml").contains("onejob-lab"));
}

#[test]
fn rooms_use_each_other_in_the_direction_of_the_arrows() {
    let mut wrong = Vec::new();
    for (folder, words) in FORBIDDEN {
        let only_tests = |path: &str| is_test(path) || path == "crates/core/src/model.rs";
        for path in files(folder, "rs").iter().filter(|path| !only_tests(path)) {
            let text = read(path);
            for (number, line) in code(&text) {
                wrong.extend(words.iter().filter(|w| line.contains(*w)).map(|w| format!("{path}:{number}: {w}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sql_stands_in_sql_files() {
    // The look at a file that may not be ours comes before any statement of ours can be meant.
    let allowed = ["crates/onejob/src/store/sqlite/open.rs"];
    let mut wrong = Vec::new();
    for path in
        files("crates/onejob/src", "rs").iter().filter(|path| !is_test(path) && !allowed.contains(&path.as_str()))
    {
        let text = read(path);
        wrong.extend(
            code(&text)
                .filter(|(_, line)| SQL.iter().any(|word| line.contains(word)))
                .map(|(n, _)| format!("{path}:{n}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_sql_file_is_used() {
    let code: Vec<String> = files("crates/onejob/src", "rs").iter().map(|path| read(path)).collect();
    for path in files("crates/onejob/src", "sql") {
        let name = path.rsplit('/').next().unwrap();
        let quoted = [format!("\"{name}\""), format!("/{name}\"")];
        assert!(code.iter().any(|text| quoted.iter().any(|q| text.contains(q))), "{path} is included nowhere");
    }
}

#[test]
fn files_stay_short() {
    let long: Vec<String> = (files("crates", "rs").into_iter())
        .filter(|path| !is_test(path) && read(path).lines().count() > LONGEST_FILE)
        .collect();
    let allowed: Vec<&str> = LONGER.iter().map(|(path, _)| *path).collect();
    let unexpected: Vec<&String> = long.iter().filter(|path| !allowed.contains(&path.as_str())).collect();
    assert!(unexpected.is_empty(), "over {LONGEST_FILE} lines, look for the second idea: {unexpected:?}");
    let needless: Vec<_> = allowed.iter().filter(|path| !long.iter().any(|l| l == *path)).collect();
    assert!(needless.is_empty(), "short again, take them off the list: {needless:?}");
}

/// The words between single backticks on a page.
fn quoted(page: &str) -> Vec<&str> {
    page.split('`').skip(1).step_by(2).collect()
}

fn is_name(word: &str) -> bool {
    word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[test]
fn the_page_of_promises_names_tests_and_constraints_that_exist() {
    let page = read("docs/promises.md");
    let code: String = files("crates", "rs").iter().map(|path| read(path)).collect();
    let schema = read("crates/onejob/src/store/sqlite/schema.sql");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| R")).collect();
    assert_eq!(rows.len(), 12, "one row per rule");
    for (row, number) in rows.iter().zip(1..) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!((cells.len(), cells[0].trim()), (4, format!("R{number}").as_str()), "{row}");
        for name in quoted(cells[2]).into_iter().filter(|word| is_name(word)) {
            assert!(schema.contains(name), "R{number}: the schema has no {name}");
        }
        let tests = quoted(cells[3]);
        assert!(
            tests.iter().any(|test| test.starts_with(&format!("r{number}_")) || test.contains(&format!("_r{number}_"))),
            "R{number} has no test of its own"
        );
        for test in tests {
            assert!(is_name(test) && code.contains(&format!("fn {test}(")), "R{number}: no test is called {test}");
        }
    }
}
