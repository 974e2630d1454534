//! `twinpath show config`: the configuration keys of an instance, one on each line.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use twinpath_config::Setting;

/// One line for each key, however long: names and values are never wrapped.
pub(super) fn render(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return "config: the instance reports no keys".to_owned();
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["KEY", "VALUE", "UNIT", "FROM", "DEFAULT", "CHANGED BY"]);
    for setting in settings {
        table.add_row([
            setting.key.clone(),
            setting.value_in_words(),
            setting.unit.clone(),
            setting.source.clone(),
            setting.default_in_words(),
            setting.changed_by.clone(),
        ]);
    }
    table.trim_fmt()
}
