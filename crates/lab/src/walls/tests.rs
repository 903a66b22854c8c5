use std::path::Path;

use super::{stale, walls};

/// So that whoever moves a wall moves its entry in the list too.
#[test]
fn every_wall_of_the_list_stands_where_the_list_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for wall in walls() {
        assert_eq!(stale(wall, &root), None);
    }
}
