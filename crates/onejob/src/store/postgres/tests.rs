use super::sql;

#[test]
fn every_sql_file_is_a_statement_of_the_list() {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".sql") && !["schema.sql", "schema_begin.sql", "jobs_of_page.sql"].contains(&&*name) {
            assert!(sql::ALL.iter().any(|statement| statement.file == name), "{name} is not in sql.rs");
        }
    }
}
