use super::sample;

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = sample::document().html();
    if let Some(path) = std::env::var_os("UNDERPASS_SAMPLE_REPORT") {
        std::fs::write(path, &page).unwrap();
    }
    assert!(page.contains("default-src 'none'; style-src 'sha256-"));
    for forbidden in [
        "<script", "<link", "<img", "<iframe", "@import", "url(", "style=", "onload",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:"));
}
