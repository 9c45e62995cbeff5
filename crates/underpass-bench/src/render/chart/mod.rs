//! Charts as SVG elements inside an HTML page. Legends are HTML outside of the charts: there they
//! don't cover data, and the browser wraps them.

mod bars;
mod draw;
mod lines;
mod scale;
#[cfg(test)]
mod tests;

pub(super) use bars::{Bar, BarChart};
pub(super) use draw::{ChartText, marks, swatch};
pub(super) use lines::{MarkChart, Point, Series};
pub(super) use scale::{AxisScale, ends};
