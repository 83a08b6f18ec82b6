//! The table of figures and bounds.

use std::fmt;

struct Row {
    what: String,
    ours: Result<f64, String>,
    unit: &'static str,
    bound: f64,
}

impl Row {
    fn holds(&self) -> bool {
        self.ours.as_ref().is_ok_and(|ours| *ours <= self.bound)
    }
}

/// Figures in the order they were taken.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// A figure that must not exceed `bound`.
    pub(super) fn add(&mut self, what: &str, ours: anyhow::Result<f64>, unit: &'static str, bound: f64) {
        let ours = ours.map_err(|error| format!("{error:#}"));
        self.rows.push(Row { what: what.to_owned(), ours, unit, bound });
    }

    /// A scenario that gave no figure.
    pub(super) fn failed(&mut self, what: &str, why: &str) {
        self.rows.push(Row { what: what.to_owned(), ours: Err(why.to_owned()), unit: "", bound: 0.0 });
    }

    pub(super) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    pub(super) fn broken(&self) -> usize {
        self.rows.iter().filter(|row| !row.holds()).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | ours | bound | ok |\n|---|---|---|---|")?;
        for row in &self.rows {
            let ok = if row.holds() { "yes" } else { "NO" };
            match &row.ours {
                Ok(ours) => {
                    let (unit, bound) = (row.unit, row.bound);
                    writeln!(f, "| {} | {ours:.2} {unit} | {bound} {unit} | {ok} |", row.what)?;
                }
                Err(why) => writeln!(f, "| {} | not measured: {} | | {ok} |", row.what, why.replace('\n', " "))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_bound_and_a_missing_figure_count() {
        let mut table = Table::default();
        table.add("a", Ok(1.0), "ms", 1.0);
        table.add("b", Ok(1.1), "ms", 1.0);
        table.failed("c", "no");
        assert_eq!(table.broken(), 2);
        let text = table.to_string();
        assert!(text.contains("| a | 1.00 ms | 1 ms | yes |"), "{text}");
        assert!(text.contains("| b | 1.10 ms | 1 ms | NO |"), "{text}");
        assert!(text.contains("| c | not measured: no | | NO |"), "{text}");
    }
}
