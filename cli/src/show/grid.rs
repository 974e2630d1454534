//! The layout of all tables.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use twinpath_inspect::Counts;

/// The width in a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: u16 = 120;

/// An empty table whose columns from `first_number` on hold numbers.
pub(crate) fn table(header: &[&str], first_number: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    if !table.is_tty() {
        table.set_width(WIDTH_WITHOUT_TERMINAL);
    }
    for column in table.column_iter_mut().skip(first_number) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The headers of the columns that a set of counts declares.
pub(crate) fn headers<T: Counts>() -> impl Iterator<Item = &'static str> {
    T::DECLARED.iter().filter_map(|count| Some(count.column.as_ref()?.header))
}

/// The contents of these columns.
pub(crate) fn cells<T: Counts>(counts: &T) -> impl Iterator<Item = String> {
    T::DECLARED.iter().filter(|count| count.column.is_some()).map(|count| count.cell_of(counts))
}
