//! Printers for the output of commands: tables for people, JSON and YAML.

/// The blanks between columns, and the least width of a column, as in kubectl.
const COLUMN_PADDING: usize = 3;
const MIN_COLUMN_WIDTH: usize = 3;

/// The output format (`-o`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    Json,
    Yaml,
    /// Text with more columns.
    Wide,
}

/// Encodes a value as JSON or YAML; `None` when the format is text.
pub(crate) fn encode_output(
    output: Option<OutputFormat>,
    value: &impl serde::Serialize,
) -> anyhow::Result<Option<String>> {
    Ok(match output {
        Some(OutputFormat::Json) => Some(serde_json::to_string_pretty(value)?),
        Some(OutputFormat::Yaml) => Some(serde_saphyr::to_string(value)?.trim_end().to_owned()),
        Some(OutputFormat::Wide) | None => None,
    })
}

/// Formats a table, without a line feed at its end. Each column is as wide as its widest
/// cell; an empty cell is a dash.
pub(crate) fn format_table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let display = |cell: &str| match cell {
        "" => "-".to_owned(),
        cell => single_line(cell),
    };
    let mut lines = vec![titles.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()];
    lines.extend(
        rows.iter()
            .map(|row| row.iter().map(|c| display(c)).collect()),
    );
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(c, w)| format!("{c:w$}"));
        let line: Vec<String> = padded.collect();
        line.join("   ").trim_end().to_owned()
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    lines.join("\n")
}

/// A text without control characters: a line feed in a text of a member or of a user must not
/// begin what looks like another row.
pub(crate) fn single_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// A header, if there is one, and the lines below it, with a line feed after each.
pub(crate) fn format_lines(header: Option<&Vec<String>>, lines: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    fit_widths(&mut widths, header.map_or(&[], std::slice::from_ref));
    fit_widths(&mut widths, lines);
    let mut text = String::new();
    for line in header.into_iter().chain(lines) {
        text.push_str(&format_line(line, &widths));
        text.push('\n');
    }
    text
}

/// Widens the columns to the cells of these lines.
pub(crate) fn fit_widths(widths: &mut Vec<usize>, lines: &[Vec<String>]) {
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            if at == widths.len() {
                widths.push(MIN_COLUMN_WIDTH);
            }
            widths[at] = widths[at].max(cell.chars().count());
        }
    }
}

/// A line whose cells but the last are padded to their columns.
pub(crate) fn format_line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (at, cell) in cells.iter().enumerate() {
        text.push_str(cell);
        if at + 1 < cells.len() {
            let width = widths.get(at).copied().unwrap_or_default();
            let blanks = width.saturating_sub(cell.chars().count()) + COLUMN_PADDING;
            text.extend(std::iter::repeat_n(' ', blanks));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "", "x y"], ["long", "1", ""]].map(|r| r.map(str::to_owned).to_vec());
        let text = "NAME   N   WHY\na      -   x y\nlong   1   -";
        assert_eq!(format_table(&["NAME", "N", "WHY"], &rows), text);
    }

    // proves: CLI-one-line
    #[test]
    fn no_cell_begins_a_line() {
        let rows = [vec!["a\nb\u{1b}c".to_owned()]];
        assert_eq!(format_table(&["NAME"], &rows), "NAME\na b c");
    }
}
