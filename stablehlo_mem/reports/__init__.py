"""Results for people: text, pages, plots."""
