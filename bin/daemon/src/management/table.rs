//! Columns of text, wide enough for what is in them.

/// Appends rows whose cells stand in columns: three blanks after the first one, four after the others, none after the
/// last. Source: the shapes of Varnish 7.1's `vcl.list` and `backend.list`.
#[derive(Debug, Default)]
pub(super) struct Columns {
    rows: Vec<Row>,
}

#[derive(Debug)]
enum Row {
    Cells(Vec<String>),
    Line(String),
}

impl Columns {
    /// Adds a row.
    pub(super) fn row(&mut self, cells: &[&str]) {
        self.rows.push(Row::Cells(cells.iter().map(|&cell| cell.to_owned()).collect()));
    }

    /// Adds lines: those with tabs as rows whose cells the tabs divide, the others as they are.
    pub(super) fn lines(&mut self, lines: &[String]) {
        for line in lines {
            match line.contains('\t') {
                true => self.row(&line.split('\t').collect::<Vec<_>>()),
                false => self.rows.push(Row::Line(line.clone())),
            }
        }
    }

    /// All rows as text.
    pub(super) fn print(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            widths.resize(widths.len().max(cells.len()), 0);
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.len());
            }
        }
        let mut out = String::new();
        for row in &self.rows {
            match row {
                Row::Line(line) => out.push_str(line),
                Row::Cells(cells) => push_cells(cells, &widths, &mut out),
            }
            out.push('\n');
        }
        out
    }
}

fn push_cells(cells: &[String], widths: &[usize], out: &mut String) {
    for (column, cell) in cells.iter().enumerate() {
        out.push_str(cell);
        if column + 1 < cells.len() {
            let gap = if column == 0 { 3 } else { 4 };
            out.extend(std::iter::repeat_n(' ', widths[column] - cell.len() + gap));
        }
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
        columns.lines(&["\tx\tweights".to_owned()]);
        assert!(columns.print().starts_with("active      auto    warm            0    boot\n"));
        assert!(columns.print().ends_with("below\n            x       weights\n"));
        assert_eq!(Columns::default().print(), "");
    }
}
