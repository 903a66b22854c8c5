use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;

use super::{SqliteOptions, open, sql};

fn fresh() -> (TempDir, PathBuf, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("onejob.db");
    let connection = open::writer(&file, &SqliteOptions::default()).unwrap();
    (dir, file, connection)
}

#[test]
fn every_statement_can_be_prepared() {
    let (_dir, file, writer) = fresh();
    let reader = open::reader(&file, &SqliteOptions::default()).unwrap();
    for (name, statement) in sql::ALL {
        writer.prepare(statement).unwrap_or_else(|error| panic!("{name}: {error}"));
        reader.prepare(statement).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_sql_file_is_a_statement_of_the_list() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/store/sqlite");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".sql") && name != "schema.sql" {
            assert!(sql::ALL.iter().any(|(file, _)| *file == name), "{name} is not in sql.rs");
        }
    }
}
