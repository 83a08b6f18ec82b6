//! Lists as columns.

use mcode_text::{sanitize_line, truncate_width, width};

/// Most cells of one column; the last column is not cut.
const COLUMN_MAX: usize = 48;

/// Rows under a heading, columns padded; foreign text is made harmless.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let last = heading.len().saturating_sub(1);
    let clean: Vec<Vec<String>> = std::iter::once(heading.iter().map(|&cell| cell.to_owned()).collect())
        .chain(rows.iter().map(|row| {
            let cell = |(column, text): (usize, &String)| {
                let text = sanitize_line(text);
                if column == last { text.into_owned() } else { truncate_width(&text, COLUMN_MAX) }
            };
            row.iter().enumerate().map(cell).collect()
        }))
        .collect();
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| clean.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    let lines: Vec<String> = clean.iter().map(|row| line(row, &widths)).collect();
    lines.join("\n")
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut out = String::new();
    for (cell, cells) in row.iter().zip(widths) {
        out.push_str(cell);
        out.push_str(&" ".repeat(cells - width(cell) + 2));
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            vec![vec!["1".into(), "한".into(), "x\u{1b}[2J".into()], vec!["22".into(), "b".into(), String::new()]];
        assert_eq!(table(&["ID", "N", "TITLE"], &rows), "ID  N   TITLE\n1   한  x\\x1b[2J\n22  b");
    }

    #[test]
    fn long_cells_are_cut_but_for_the_last() {
        let long = "x".repeat(COLUMN_MAX + 1);
        let text = table(&["A", "B"], &[vec![long.clone(), long.clone()]]);
        assert!(text.contains('…') && text.ends_with(&long));
    }
}
