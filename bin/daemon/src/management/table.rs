//! Columns of text, wide enough for what is in them.

/// Appends rows whose cells stand in columns: three blanks after the first one, four after the others, none after the
/// last. Source: the shapes of Varnish 7.1's `vcl.list` and `backend.list`.
#[derive(Debug, Default)]
pub(super) struct Columns {
    rows: Vec<(Vec<String>, Vec<String>)>,
}

impl Columns {
    /// Adds a row.
    pub(super) fn row(&mut self, cells: &[&str]) {
        self.rows.push((cells.iter().map(|&cell| cell.to_owned()).collect(), Vec::new()));
    }

    /// Adds lines that follow the last row as they are.
    pub(super) fn lines(&mut self, lines: &[String]) {
        if let Some((_, below)) = self.rows.last_mut() {
            below.extend_from_slice(lines);
        }
    }

    /// All rows as text.
    pub(super) fn print(&self) -> String {
        let count = self.rows.iter().map(|(cells, _)| cells.len()).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|(cells, _)| cells.get(column)).map(String::len).max().unwrap_or(0)
        };
        let widths: Vec<usize> =
            (0..count).map(|column| width(column) + if column == 0 { 3 } else { 4 }).collect();
        let mut out = String::new();
        for (cells, below) in &self.rows {
            for (column, cell) in cells.iter().enumerate() {
                out.push_str(cell);
                if column + 1 < cells.len() {
                    out.extend(std::iter::repeat_n(' ', widths[column] - cell.len()));
                }
            }
            out.push('\n');
            for line in below {
                out.push_str(line);
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed() {
        let mut columns = Columns::default();
        columns.row(&["active", "auto", "warm", "     0", "boot"]);
        assert_eq!(columns.print(), "active   auto    warm         0    boot\n");
        columns.row(&["available", "cold", "cold", "     0", "c2"]);
        columns.lines(&["below".to_owned()]);
        assert_eq!(
            columns.print(),
            "active      auto    warm         0    boot\navailable   cold    cold         0    c2\nbelow\n"
        );
        assert_eq!(Columns::default().print(), "");
    }
}
