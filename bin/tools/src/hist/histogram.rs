//! The last values, counted in columns that stand on a logarithmic scale, and the page that shows them.

use std::collections::VecDeque;

/// So many of the last values count.
const VALUES_MAX: usize = 2000;
/// Rows of the page below the bars: the axis and its labels.
const FOOT: usize = 2;

/// The last values.
#[derive(Debug)]
pub(super) struct Histogram {
    low: i32,
    high: i32,
    /// The power of ten of a value, and whether it was a hit.
    values: VecDeque<(f64, bool)>,
}

impl Histogram {
    /// An empty one, from one power of ten to another.
    pub(super) fn new(low: i32, high: i32) -> Histogram {
        Histogram { low, high, values: VecDeque::new() }
    }

    /// Counts a value. One of 0 or less stands at the left end.
    pub(super) fn add(&mut self, value: f64, hit: bool) {
        let power = if value > 0.0 { value.log10() } else { f64::from(self.low) };
        if self.values.len() == VALUES_MAX {
            self.values.pop_front();
        }
        self.values.push_back((power, hit));
    }

    /// How many values count.
    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    /// The page of these dimensions, and how many values a mark stands for. Misses `#` stand below hits `|`.
    pub(super) fn page(&self, height: usize, width: usize) -> (Vec<String>, usize) {
        let decades = (self.high - self.low) as usize;
        let per_decade = (width / decades).max(1);
        let columns = per_decade * decades;
        let bars_height = height.saturating_sub(FOOT);
        let (misses, hits) = self.columns(columns, per_decade);
        let tallest = misses.iter().zip(&hits).map(|(miss, hit)| miss + hit).max().unwrap_or(0);
        let mut scale = 1;
        while bars_height > 0 && tallest.div_ceil(scale) > bars_height.saturating_sub(1).max(1) {
            scale += 1;
        }
        let mut rows = Vec::with_capacity(height);
        for row in 0..bars_height {
            // Counted from the axis, from 1.
            let level = bars_height - row;
            let mut text: Vec<u8> = (0..columns)
                .map(|column| {
                    match (misses[column].div_ceil(scale), (misses[column] + hits[column]).div_ceil(scale)) {
                        (miss, _) if level <= miss => b'#',
                        (_, all) if level <= all => b'|',
                        _ => b' ',
                    }
                })
                .collect();
            if level.is_multiple_of(5) {
                let label = format!("{}_", level * scale);
                for (place, byte) in text.iter_mut().zip(label.bytes()) {
                    *place = if *place == b' ' { byte } else { *place };
                }
            }
            rows.push(String::from_utf8_lossy(&text).into_owned());
        }
        rows.push((0..columns).map(|column| if column % per_decade == 0 { '+' } else { '-' }).collect());
        rows.push(
            (self.low..self.high).map(|power| format!("{:<per_decade$}", format!("|1e{power}"))).collect(),
        );
        (rows, scale)
    }

    /// Misses and hits of each column.
    fn columns(&self, columns: usize, per_decade: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut misses, mut hits) = (vec![0; columns], vec![0; columns]);
        for (power, hit) in &self.values {
            // The conversion keeps within the bounds.
            let column = ((power - f64::from(self.low)) * per_decade as f64) as usize;
            let side = if *hit { &mut hits } else { &mut misses };
            side[column.min(columns - 1)] += 1;
        }
        (misses, hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page() {
        let mut histogram = Histogram::new(-6, 3);
        histogram.add(0.000_02, true);
        histogram.add(0.000_6, false);
        histogram.add(0.000_6, true);
        histogram.add(1e9, false);
        histogram.add(0.0, false);
        let (rows, scale) = histogram.page(8, 80);
        assert_eq!(scale, 1);
        assert_eq!(rows.len(), 8);
        let trimmed: Vec<&str> = rows.iter().map(|row| row.trim_end()).collect();
        assert_eq!(
            trimmed[1..],
            [
                "5_",
                "",
                "",
                "                      |",
                "#         |           #                                                #",
                "+-------+-------+-------+-------+-------+-------+-------+-------+-------",
                "|1e-6   |1e-5   |1e-4   |1e-3   |1e-2   |1e-1   |1e0    |1e1    |1e2",
            ]
        );
    }

    #[test]
    fn many_values_are_scaled_and_only_the_last_count() {
        let mut histogram = Histogram::new(1, 8);
        (0..3000).for_each(|_| histogram.add(100.0, false));
        assert_eq!(histogram.count(), VALUES_MAX);
        let (rows, scale) = histogram.page(23, 80);
        assert_eq!(scale, 100);
        assert!(rows[1].contains('#') && !rows[0].contains('#'));
        histogram.page(0, 0);
        histogram.page(1, 1);
    }
}
