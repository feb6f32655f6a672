//! Tables that fit the terminal, without lines that a person must read around.

use comfy_table::{ContentArrangement, Table, presets};

/// A table with a head.
pub(super) fn of(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(head.iter());
    table.add_rows(rows);
    table
}
