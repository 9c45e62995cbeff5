//! ARCHITECTURE.md has a glossary, and it is short.

use super::code::Tree;
use super::complaint::Complaint;

const PAGE: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = "## Glossary";
const TERMS_MAX: usize = 40;

/// The glossary consists of the tables under its heading, up to the next heading: a row explains
/// the comma-separated terms of its first cell.
pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let page = tree.text(PAGE).unwrap_or_default();
    let mut lines = page.lines().skip_while(|line| *line != GLOSSARY);
    if lines.next().is_none() {
        return vec![Complaint::new(PAGE, format!("has no heading `{GLOSSARY}`"))];
    }
    let section = lines.take_while(|line| !line.starts_with("## "));
    let rows: Vec<_> = section.filter_map(|line| line.strip_prefix('|')).collect();
    let is_rule = |row: &str| row.starts_with("---");
    // The row before a rule is the header of its table.
    let heads = rows.iter().filter(|row| is_rule(row)).count();
    let rows = rows.iter().filter(|row| !is_rule(row));
    let cells = rows.filter_map(|row| row.split('|').next());
    let terms = cells.map(|cell| cell.split(',').count()).sum::<usize>() - heads;
    let text = format!("{terms} terms in the glossary, of at most {TERMS_MAX}");
    Vec::from_iter((terms > TERMS_MAX).then(|| Complaint::new(PAGE, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_glossary_has_forty_terms() {
        let page = |rows: usize| {
            let rows = "| **A, B** | one |\n|**C**| two |\n".repeat(rows);
            let page =
                format!("{GLOSSARY}\n\n| term | meaning |\n|---|---|\n{rows}\n## Next\n| D |");
            check(&Tree::of(&[(PAGE, &page)])).len()
        };
        assert_eq!((page(13), page(14)), (0, 1));
    }

    #[test]
    fn a_missing_glossary_is_an_error() {
        assert_eq!(check(&Tree::of(&[(PAGE, "## Words\n")])).len(), 1);
    }
}
